"""What stands in a home: seats, tables, shelves, beds and lamps."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import color, household_color, pack, size, style

_FEATURES = features(
    being={
        "easy to assemble": "twenty minutes with the wrench from the box",
        "space saving": "takes less floor than a folded newspaper stand",
        "water resistant": "spilled drinks bead up and wipe off",
        "scratch resistant": "keys and claws leave no trace",
        "heavy duty": "holds up to three hundred pounds",
        "height adjustable": "five steps from low to tall",
        "machine washable": "covers come off and go in at thirty degrees",
        "fully assembled": "lift it out of the carton and use it",
        "eco friendly": "from managed forests and low-emission glue",
        "fade resistant": "still bright after a summer at the window",
        "wrinkle resistant": "smooth without an iron",
        "noise reducing": "takes the echo out of a bare room",
        "light blocking": "keeps street lamps and sunrise outside",
        "wall mounted": "hangs from two hidden brackets",
    },
    having={
        "storage drawers": "two of them, on quiet runners",
        "metal legs": "powder-coated steel that does not wobble",
        "high density foam": "keeps its shape after years of evenings",
        "lumbar support": "fills the hollow of the lower back",
        "non slip feet": "rubber pads that spare the floor",
        "solid wood": "planks and not chips, finished with oil",
        "tempered glass": "thick, safe and easy to wipe",
        "hidden zipper": "tucked under the edge",
        "dimmable light": "from reading level down to a glow",
        "usb ports": "two sockets within reach of the pillow",
        "safety lock": "keeps little fingers out",
        "swivel base": "turns all the way around",
        "deep pockets": "room for mattresses of up to fifteen inches",
        "blackout lining": "a second layer behind the fabric",
        "fringed edges": "knotted by hand along two sides",
    },
    purpose={
        "small spaces": "planned for studios and narrow halls",
        "living room": "calm lines that go with any sofa",
        "guest rooms": "ready when visitors come unannounced",
        "kids room": "rounded corners and a low center",
        "home office": "looks tidy behind you on camera",
        "outdoor patio": "shrugs off dew and midday sun",
        "hot sleepers": "lets warmth out through the night",
        "high traffic": "made for halls where everyone walks",
    },
    near={
        "easy to assemble": "professional assembly advised",
        "machine washable": "spot clean only",
        "water resistant": "keep away from water",
        "storage drawers": "open storage",
        "metal legs": "metal look",
        "solid wood": "wood grain print",
        "tempered glass": "clear acrylic top",
        "height adjustable": "fixed height",
        "dimmable light": "single brightness",
        "light blocking": "light filtering sheer",
        "lumbar support": "flat back",
        "fully assembled": "pre drilled panels",
    },
)

FURNITURE = Department(
    category="garden",
    path="Home & Kitchen",
    brands=words(
        "Haldenwood|Birchbramble Row|Stillwend Loft|Norrvik Home|Oakenfell|Casa Merrin|"
        "Tillandale|Fernhearth|Plainfell Joinery|Lowlander Living|Grayfinch|Timberlane Row"
    ),
    features=_FEATURES,
    notes=(
        "All screws are counted, with a spare of each.",
        "Please measure the door before ordering.",
        "The carton is reinforced at the corners.",
        "Replacement parts are sent free of charge for two years.",
        "Photos show one of several ways to place it.",
    ),
    costly=("Showroom Collection", "Handcrafted Heirloom Series", "Hotel Grade Edition"),
    kinds=(
        kind(
            "console tables",
            path="Furniture > Living Room Furniture > Tables",
            number="one",
            names="console table|coffee table|end table",
            lines="farmhouse|mid century|industrial",
            features=(
                "easy to assemble|space saving|scratch resistant|heavy duty|storage drawers|metal legs|solid wood|"
                "tempered glass|non slip feet|living room|small spaces"
            ),
            options=(
                color("walnut|black|white|oak|espresso|gray"),
                size("24 inch|36 inch|48 inch|60 inch"),
            ),
            price=(48, 190),
            details="for Entryway|Modern Look|Sofa Side|Two Tier|Accent Furniture|Rectangular",
            notes=("The lower shelf takes a basket or books.", "Ships in one flat box."),
            accessory="table cover for",
        ),
        kind(
            "home office chairs",
            path="Furniture > Home Office Furniture > Chairs",
            number="one",
            names="office chair|task chair|accent chair",
            lines="mesh|velvet|boucle",
            features=(
                "easy to assemble|height adjustable|heavy duty|water resistant|high density foam|lumbar support|"
                "swivel base|metal legs|home office|small spaces|living room"
            ),
            options=(household_color(), style("with armrests|armless|with headrest", "style")),
            price=(58, 210),
            details="for Adults|Upholstered|Vanity Seat|Mid Back|Computer Desk|Modern Design",
            notes=("The seat is nineteen inches wide.", "Casters roll on wood and carpet."),
            accessory="seat cover for",
        ),
        kind(
            "throw pillow covers",
            path="Bedding > Decorative Pillows, Inserts & Covers",
            number="many",
            names="throw pillow covers|cushion covers|lumbar pillow covers",
            lines="linen look|corduroy|velvet",
            features=(
                "machine washable|fade resistant|wrinkle resistant|eco friendly|water resistant|hidden zipper|"
                "fringed edges|living room|outdoor patio|guest rooms"
            ),
            options=(
                household_color(),
                size("12 x 20 inch|16 x 16 inch|18 x 18 inch|20 x 20 inch"),
                pack("pack of 1|pack of 2|pack of 4"),
            ),
            price=(9, 33),
            details="Home Decor|for Couch and Bed|Boho Style|Farmhouse Accent|Square Look|Seasonal",
            notes=("Inserts are sold apart.", "Take an insert two inches larger for a full look."),
            accessory="pillow inserts for",
        ),
        kind(
            "table lamps",
            path="Lighting & Ceiling Fans > Lamps & Shades",
            number="one",
            names="table lamp|floor lamp|reading lamp",
            lines="rattan|ceramic|brass finish",
            features=(
                "easy to assemble|height adjustable|space saving|scratch resistant|dimmable light|usb ports|metal legs|"
                "non slip feet|living room|home office|kids room"
            ),
            options=(
                color("black|white|gold|green|blush|teal|brown"),
                style("pull chain|foot switch|touch dimmer", "switch"),
            ),
            price=(24, 89),
            details="Bedside Light|Warm White Bulb|Linen Shade|Modern Lighting|Nightstand|Corner Light",
            notes=("A bulb is in the box.", "The cord is six feet long."),
            accessory="replacement shade for",
        ),
        kind(
            "bed sheets",
            path="Bedding > Sheets & Pillowcases",
            number="one",
            names="sheet set|duvet cover set|fitted sheet",
            lines="bamboo viscose|brushed microfiber|percale",
            features=(
                "machine washable|fade resistant|wrinkle resistant|eco friendly|deep pockets|hidden zipper|"
                "fringed edges|hot sleepers|guest rooms|kids room"
            ),
            options=(household_color(), size("twin|full|queen|king|california king")),
            price=(19, 78),
            details="Hotel Feel|4 Piece Look|Breathable Weave|All Season|Bedroom Basics|Soft Touch",
            notes=("Elastic all the way around.", "Gets softer with every wash."),
            accessory="corner clips for",
        ),
        kind(
            "curtains",
            path="Window Treatments > Curtains & Drapes",
            number="many",
            names="curtains|drapes|valances",
            lines="linen textured|velvet|chevron print",
            features=(
                "machine washable|light blocking|noise reducing|fade resistant|wrinkle resistant|blackout lining|"
                "fringed edges|living room|kids room|outdoor patio"
            ),
            options=(
                household_color(),
                size("52 x 63 inch|52 x 84 inch|52 x 95 inch|52 x 108 inch"),
                style("grommet top|rod pocket|back tab", "style"),
            ),
            price=(16, 62),
            details="2 Panels|Bedroom Window|Thermal|Room Divider|Privacy|Modern Home",
            notes=("Ties are included.", "Steam lightly after hanging."),
            accessory="curtain rod for",
        ),
        kind(
            "area rugs",
            path="Rugs > Area Rugs",
            number="one",
            names="area rug|runner rug|bath rug",
            lines="shaggy|braided jute|vintage print",
            features=(
                "machine washable|water resistant|fade resistant|eco friendly|noise reducing|non slip feet|"
                "fringed edges|high traffic|living room|kids room|heavy duty"
            ),
            options=(household_color(), size("2 x 3 feet|3 x 5 feet|4 x 6 feet|5 x 8 feet")),
            price=(22, 118),
            details="Low Pile|Bedroom Carpet|Indoor|Soft Underfoot|Hallway|Home Accent",
            notes=("Lay it flat for two days after unrolling.", "Vacuum without the beater bar."),
            accessory="rug pad for",
        ),
        kind(
            "shelving units",
            path="Furniture > Storage Furniture > Shelves",
            number="one",
            names="bookshelf|storage shelf|plant stand",
            lines="ladder|cube|corner",
            features=(
                "easy to assemble|space saving|heavy duty|scratch resistant|wall mounted|fully assembled|metal legs|"
                "solid wood|storage drawers|safety lock|home office|small spaces"
            ),
            options=(
                color("black|white|walnut|natural|gray|green"),
                size("3 tier|4 tier|5 tier|6 tier"),
            ),
            price=(34, 149),
            details="Open Back|Tall and Narrow|Living Area|Display Rack|Bathroom Tower|Sturdy Frame",
            notes=("Anchors for the wall are included.", "Each board holds thirty pounds."),
            accessory="storage bins for",
        ),
    ),
)
