"""Building, painting, puzzles and dolls."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import color, pack, size, style

_FEATURES = features(
    being={
        "non toxic": "every paint and part is tested for mouths",
        "battery operated": "two cells, behind a screwed door",
        "easy to clean": "crumbs and glue come off with a wipe",
        "glow in the dark": "charge it at the lamp and switch the lamp off",
        "screen free": "no app, no login and no pop-ups",
        "hand painted": "no two faces are quite alike",
        "machine washable": "in a pillow case, on the gentle cycle",
        "travel sized": "fits the seat pocket in front of you",
        "remote controlled": "reaches to the far end of the yard",
        "splinter free": "edges are sanded three times",
        "self correcting": "pieces fit only where they belong",
        "glitter free": "nothing to find in the carpet next year",
    },
    having={
        "storage box": "everything goes home into one carton",
        "rounded edges": "safe for a tumble",
        "rechargeable battery": "a small cable is enough",
        "sound effects": "six of them, and a switch for quiet",
        "magnetic pieces": "click together with a friendly snap",
        "picture instructions": "no reading needed",
        "spare parts": "for what the sofa swallows",
        "soft filling": "plump and good to hug",
        "carrying handle": "for small hands on the move",
        "suction cups": "sticks to tiles and trays",
        "wipe off surface": "draw, clean and draw again",
        "volume control": "three levels, one of them for parents",
    },
    purpose={
        "fine motor skills": "pinching, turning and threading",
        "toddlers": "chunky shapes for first tries",
        "family game night": "rules that fit on one page",
        "birthday parties": "ten children, one table and no tears",
        "rainy days": "hours of quiet on the carpet",
        "bath time": "floats, squirts and drains dry",
        "classroom use": "enough pieces for a whole table",
        "color learning": "names and shades, side by side",
    },
    near={
        "battery operated": "batteries not included",
        "non toxic": "faint paint smell",
        "machine washable": "surface wash only",
        "remote controlled": "pull back motor",
        "rechargeable battery": "button battery",
        "storage box": "loose packed",
        "magnetic pieces": "cardboard pieces",
        "sound effects": "silent play",
        "travel sized": "giant sized",
        "glow in the dark": "bright neon look",
        "family game night": "solo play",
        "bath time": "bed time",
    },
)

TOYS = Department(
    category="toys",
    path="Toys & Games",
    brands=words(
        "Pippinbarrow|Merrowotter|Tumblewick|Acornshaw|Noodlebeam|Hopscotch Hollow|Kiddlestone|"
        "Wobblewood|Little Foxmoor|Jollypine|Puddle & Kite|Dandelane"
    ),
    features=_FEATURES,
    notes=(
        "Meets the usual safety rules for toys.",
        "Adult supervision is recommended during the first game.",
        "Designed by two teachers and tested by their classes.",
        "Packed without plastic wrap.",
        "Lost a piece? Write to us and we send one.",
    ),
    costly=("Deluxe Collector Edition", "Classroom Set of 8", "Anniversary Edition"),
    kinds=(
        kind(
            "building toys",
            path="Building Toys > Building Sets",
            number="many",
            names="building blocks|marble runs|stacking tiles",
            lines="wooden|castle|space",
            features=(
                "non toxic|splinter free|easy to clean|screen free|storage box|rounded edges|magnetic pieces|"
                "picture instructions|spare parts|fine motor skills|toddlers|classroom use"
            ),
            options=(
                color("rainbow|pastel|natural|blue|red|green"),
                size("30 pieces|60 pieces|100 pieces|150 pieces"),
            ),
            price=(14, 58),
            details="for Kids Ages 3 and Up|STEM Toy|Boys and Girls|Creative Play|Preschool|Holiday Gift",
            notes=("Works together with most other sets.", "The largest tower so far has ninety floors."),
            accessory="play mat for",
        ),
        kind(
            "jigsaw puzzles",
            path="Puzzles > Jigsaw Puzzles",
            number="one",
            names="jigsaw puzzle|floor puzzle|3d puzzle",
            lines="animal|city|world map",
            features=(
                "glow in the dark|screen free|hand painted|travel sized|non toxic|storage box|magnetic pieces|"
                "picture instructions|spare parts|rainy days|family game night|self correcting"
            ),
            options=(
                style("sunset|jungle|ocean|castle|winter", "picture"),
                size("24 pieces|48 pieces|100 pieces|500 pieces|1000 pieces"),
            ),
            price=(9, 32),
            details="for Adults and Kids|Thick Board|Poster Included|Matte Finish|Brain Game|Gift Idea",
            notes=("The finished picture can be framed.", "Cut with a new die for a clean fit."),
            accessory="sorting trays for",
        ),
        kind(
            "stuffed animals",
            path="Stuffed Animals & Plush Toys > Plush Figures",
            number="one",
            names="plush toy|weighted plush|hand puppet",
            lines="sloth|bunny|dinosaur",
            features=(
                "machine washable|non toxic|hand painted|travel sized|glow in the dark|soft filling|sound effects|"
                "volume control|toddlers|birthday parties|carrying handle"
            ),
            options=(
                color("brown|pink|gray|green|yellow|purple"),
                size("8 inch|12 inch|16 inch|24 inch"),
            ),
            price=(11, 44),
            details="for Kids|Cuddle Friend|Nursery Decor|Bedtime Buddy|Cute Gift|Embroidered Eyes",
            notes=("Fluff it up after unpacking.", "A name tag waits to be filled in."),
            accessory="costume set for",
        ),
        kind(
            "board games",
            path="Games & Accessories > Board Games",
            number="one",
            names="board game|card game|memory game",
            lines="strategy|cooperative|trivia",
            features=(
                "screen free|travel sized|easy to clean|hand painted|storage box|magnetic pieces|spare parts|"
                "picture instructions|family game night|rainy days|classroom use|wipe off surface"
            ),
            options=(
                style("pirate theme|farm theme|robot theme|garden theme", "theme"),
                size("2 players|4 players|6 players|8 players", "game size"),
            ),
            price=(12, 46),
            details="for Adults and Teens|Ages 8 and Up|30 Minute Play|Fun for Everyone|Easy to Learn|Party Pick",
            notes=("Takes about half an hour.", "Sand timer included."),
            accessory="card sleeves for",
        ),
        kind(
            "remote control vehicles",
            path="Remote & App Controlled Toys > Vehicles",
            number="one",
            names="toy car|toy boat|toy drone",
            lines="off road|stunt|police",
            features=(
                "remote controlled|battery operated|glow in the dark|easy to clean|rechargeable battery|sound effects|"
                "volume control|spare parts|rounded edges|rainy days|birthday parties"
            ),
            options=(
                color("red|black|green|orange|yellow|purple"),
                style("single set|twin set|with ramp", "set"),
            ),
            price=(19, 76),
            details="for Boys and Girls|Ages 6 and Up|1:18 Scale|Fast Racer|Indoor and Yard|Gift Box",
            notes=("Runs for twenty minutes at full speed.", "Bumpers on all four corners."),
            accessory="spare wheels for",
        ),
        kind(
            "arts & crafts kits",
            path="Arts & Crafts > Craft Kits",
            number="one",
            names="craft kit|painting set|bead set",
            lines="mosaic|unicorn|nature",
            features=(
                "non toxic|glitter free|easy to clean|screen free|glow in the dark|storage box|picture instructions|"
                "carrying handle|wipe off surface|fine motor skills|birthday parties|classroom use"
            ),
            options=(
                color("pastel|rainbow|neon|red|purple|blue"),
                pack("pack of 1|pack of 2|pack of 4"),
            ),
            price=(9, 36),
            details="for Kids Ages 5 and Up|Creative Gift|All in One|Girls and Boys|After School Fun|Art Supplies",
            notes=("Cover the table first.", "Dries within the hour."),
            accessory="refill pack for",
        ),
        kind(
            "baby toys",
            path="Baby & Toddler Toys > Early Development Toys",
            number="one",
            names="shape sorter|stacking cups set|activity cube",
            lines="silicone|maple|farm friends",
            features=(
                "non toxic|splinter free|self correcting|easy to clean|battery operated|rounded edges|suction cups|"
                "sound effects|volume control|fine motor skills|bath time|color learning"
            ),
            options=(
                color("pastel|blue|pink|green|yellow|gray"),
                style("boxed|gift wrapped|with playmat", "packaging"),
            ),
            price=(11, 42),
            details="for 1 Year Old|Early Learning|Montessori Style|Shower Gift|Sensory Play|6 to 18 Months",
            notes=("Too large to swallow, small enough to hold.", "Boil once before the first use."),
            accessory="mesh bag for",
        ),
        kind(
            "drawing toys",
            path="Learning & Education > Drawing Boards",
            number="one",
            names="drawing board|writing tablet|easel",
            lines="double sided|tabletop|doodle",
            features=(
                "battery operated|screen free|easy to clean|travel sized|glow in the dark|magnetic pieces|"
                "wipe off surface|carrying handle|rounded edges|toddlers|color learning|classroom use"
            ),
            options=(
                color("pink|blue|green|yellow|purple|red"),
                size("8.5 inch|10 inch|12 inch|16 inch"),
            ),
            price=(10, 48),
            details="for Kids|Learning Toy|Road Trip Fun|Ages 3 to 8|Preschool Skills|with Pen",
            notes=("The pen clips to the side.", "One press and the picture is gone."),
            accessory="replacement pens for",
        ),
    ),
)
