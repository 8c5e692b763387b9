"""Paper, pens, desks and what keeps them tidy."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import color, size, style

_FEATURES = features(
    being={
        "acid free": "does not turn yellow in the drawer",
        "quick drying": "left-handed writers will notice",
        "bleed proof": "both sides of the sheet can be used",
        "tear resistant": "survives the bottom of a school bag",
        "refillable": "keep the body and change the inside",
        "easy to assemble": "no tools and no swearing",
        "space saving": "gives the desk back to you",
        "smudge proof": "run a marker over it and see",
        "water resistant": "a coffee ring wipes off",
        "magnetic": "holds on to cabinets and boards",
        "recycled": "made from paper that was read before",
        "undated": "start in any month you like",
        "eye friendly": "low glare and no flicker",
        "tamper evident": "nobody opens it without a trace",
    },
    having={
        "lined pages": "seven millimeters between the rules",
        "ribbon bookmark": "finds the page for you",
        "elastic closure": "keeps loose notes inside",
        "fine tip": "half a millimeter, crisp and dark",
        "soft grip": "no dent in the finger after an exam",
        "label holders": "know what is inside without opening",
        "locking wheels": "moves when you want and stays when you do not",
        "cable management": "a tray that hides the spaghetti",
        "non slip pads": "quiet and steady on glass",
        "inner pocket": "for receipts and cards",
        "numbered pages": "with a table to fill in at the front",
        "adhesive back": "peel, press and done",
        "combination lock": "choose your own four digits",
        "monitor shelf": "lifts the screen to the eye",
    },
    purpose={
        "left handed writers": "no smear and no cramp",
        "teachers": "counts for a class of thirty",
        "bullet journals": "dots that guide and do not shout",
        "tax records": "seven years fit into one of them",
        "dorm rooms": "fits beside a bunk bed",
        "standing desks": "made for those who work upright",
        "travel notes": "lives in a coat pocket",
        "whiteboards": "wipes off dry, even a week later",
    },
    near={
        "acid free": "acid etched look",
        "bleed proof": "slight bleed through",
        "refillable": "disposable",
        "lined pages": "blank pages",
        "fine tip": "broad tip",
        "elastic closure": "open edge",
        "locking wheels": "fixed legs",
        "inner pocket": "no pocket",
        "quick drying": "slow drying",
        "tear resistant": "easy tear",
        "combination lock": "key hook",
        "adhesive back": "pin back",
        "easy to assemble": "expert assembly advised",
    },
)

OFFICE = Department(
    category="office",
    path="Office Products",
    brands=words(
        "Inkmarsh|Foliofern|Deskmoor|Clerkenby|Margin Street|Quillhaven Paper|Tidymark|"
        "Pagelarrow|Stapleford House|Bindlemoor|Ledgerly|Graphite Lane"
    ),
    features=_FEATURES,
    notes=(
        "Ships in a plain carton that fits most mail slots.",
        "Invoices for companies are available on request.",
        "Our paper comes from mills that replant.",
        "Customer service answers on every working day.",
        "The size on the picture may mislead: please read the measures.",
    ),
    costly=("Executive Edition", "Bulk Office Carton", "Archive Grade Set"),
    kinds=(
        kind(
            "notebooks",
            path="Office & School Supplies > Paper > Notebooks",
            number="one",
            names="notebook|journal|sketchbook",
            lines="hardcover|cork cover|spiral",
            features=(
                "acid free|bleed proof|tear resistant|recycled|refillable|lined pages|ribbon bookmark|elastic closure|"
                "numbered pages|inner pocket|bullet journals|travel notes"
            ),
            options=(
                color("black|navy|green|red|purple|brown|pink"),
                style("softcover|ringbound|slipcase", "edition"),
                size("pocket|a5|b5|a4"),
            ),
            price=(7, 27),
            details="160 Pages|for School and Work|Writing Gift|College Student|Classic Look|100 gsm Paper",
            notes=("Opens flat.", "The cover can be embossed."),
            accessory="pen loop for",
        ),
        kind(
            "pens",
            path="Office & School Supplies > Writing Supplies > Pens",
            number="many",
            names="gel pens|rollerball pens|brush pens",
            lines="retractable|metal|dual",
            features=(
                "quick drying|smudge proof|refillable|bleed proof|acid free|fine tip|soft grip|water resistant|"
                "left handed writers|bullet journals|teachers"
            ),
            options=(
                color("black|blue|red|green|purple|assorted"),
                size("4 count|8 count|12 count|24 count"),
            ),
            price=(6, 24),
            details="for Writing and Drawing|Smooth Flow|Office Basics|Cute Stationery|Exam Ready|0.7 mm",
            notes=("Cap tightly after use.", "Writes about a mile each."),
            accessory="pencil case for",
        ),
        kind(
            "desk organizers",
            path="Office & School Supplies > Desk Accessories & Workspace Organizers",
            number="one",
            names="desk organizer|pen holder|letter tray",
            lines="mesh metal|bamboo|acrylic",
            features=(
                "easy to assemble|space saving|water resistant|magnetic|recycled|label holders|non slip pads|"
                "cable management|dorm rooms|teachers|tax records"
            ),
            options=(
                color("black|white|pink|gold|teal|gray"),
                size("3 compartments|5 compartments|7 compartments|9 compartments"),
            ),
            price=(11, 42),
            details="for Office and Home|Tidy Workspace|with Drawer|Desktop Storage|Modern Accessory|Stable Build",
            notes=("Holds letter size without bending.", "The feet do not scratch."),
            accessory="divider set for",
        ),
        kind(
            "planners",
            path="Office & School Supplies > Calendars, Planners & Personal Organizers",
            number="one",
            names="weekly planner|daily planner|desk calendar",
            lines="floral|minimal|marbled",
            features=(
                "undated|bleed proof|acid free|recycled|refillable|ribbon bookmark|elastic closure|inner pocket|"
                "adhesive back|teachers|travel notes|numbered pages"
            ),
            options=(
                color("black|green|pink|navy|cream|purple"),
                style("horizontal|vertical|hourly", "layout"),
            ),
            price=(9, 31),
            details="for Work and School|Goal Setting|with Stickers|Academic Year|12 Months|To Do Lists",
            notes=("Tabs for each month.", "Thick covers that do not curl."),
            accessory="sticker book for",
        ),
        kind(
            "standing desk converters",
            path="Office Furniture & Lighting > Desks & Workstations",
            number="one",
            names="standing desk|laptop stand|computer desk",
            lines="walnut top|electric|foldable",
            features=(
                "easy to assemble|space saving|water resistant|eye friendly|locking wheels|cable management|"
                "non slip pads|monitor shelf|dorm rooms|standing desks|teachers"
            ),
            options=(
                color("black|white|oak|gray|cherry"),
                size("28 inch|32 inch|40 inch|48 inch"),
            ),
            price=(39, 210),
            details="Workstation|Home Study|Sturdy Frame|Writing Table|Sit and Stand|Gaming Corner",
            notes=("Holds forty pounds without swaying.", "Edges are rounded and sealed."),
            accessory="anti fatigue mat for",
        ),
        kind(
            "filing products",
            path="Office & School Supplies > Filing Products",
            number="one",
            names="file box|accordion folder|document bag",
            lines="fireproof|expanding|canvas",
            features=(
                "water resistant|acid free|space saving|tamper evident|label holders|combination lock|"
                "elastic closure|inner pocket|tax records|teachers|dorm rooms"
            ),
            options=(
                color("black|blue|gray|pink|green|red"),
                size("7 pockets|13 pockets|24 pockets|36 pockets"),
            ),
            price=(13, 54),
            details="Letter Size|for Home Office|Document Organizer|Portable|Important Papers|with Handle",
            notes=("Tabs can be written on and wiped.", "A4 fits as well."),
            accessory="index tabs for",
        ),
        kind(
            "dry erase supplies",
            path="Office & School Supplies > Presentation Boards",
            number="one",
            names="dry erase board|memo board|wall planner",
            lines="framed|glass top|frameless",
            features=(
                "magnetic|smudge proof|easy to assemble|space saving|recycled|adhesive back|locking wheels|"
                "label holders|whiteboards|teachers|dorm rooms|undated"
            ),
            options=(
                color("white|black|silver|pink|oak"),
                size("12 x 16 inch|18 x 24 inch|24 x 36 inch|36 x 48 inch"),
            ),
            price=(14, 88),
            details="for Wall|with Markers|Office and Kitchen|Meeting Room|Kids Homework|Landscape or Portrait",
            notes=("Peel off the film before you write.", "Clean with a dry cloth."),
            accessory="eraser set for",
        ),
        kind(
            "desk lamps",
            path="Office Furniture & Lighting > Lighting > Desk Lamps",
            number="one",
            names="desk lamp|clip lamp|monitor light",
            lines="swing arm|gooseneck|architect",
            features=(
                "eye friendly|easy to assemble|space saving|magnetic|non slip pads|cable management|soft grip|"
                "dorm rooms|left handed writers|standing desks"
            ),
            options=(
                color("black|white|silver|pink|green|gold"),
                style("amber|halogen|full spectrum", "bulb"),
            ),
            price=(17, 66),
            details="for Home Office|LED|Task Light|Reading and Crafts|Touch Dimmer|Study Table",
            notes=("Uses nine watts.", "Remembers the last setting."),
            accessory="spare clamp for",
        ),
    ),
)
