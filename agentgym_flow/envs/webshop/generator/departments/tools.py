"""Tools, garden and the car."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import color, pack, size, style

_FEATURES = features(
    being={
        "heavy duty": "built for people who do this every day",
        "rust proof": "leave it out all winter",
        "kink free": "turns corners without folding",
        "frost resistant": "does not crack when water turns to ice",
        "uv stable": "the sun may try for ten years",
        "easy to install": "four screws, or none at all",
        "solar powered": "charges by day and works by night",
        "cordless": "no outlet in sight and no problem",
        "leak proof": "double rings at every joint",
        "self watering": "a hidden tank that lasts for two weeks",
        "biodegradable": "gone by the next spring",
        "magnetic": "screws stay where you put them",
        "universal fit": "trims to size with scissors",
        "foldable": "half the length when you are done",
        "all weather": "snow, mud and heat are the same to it",
    },
    having={
        "ergonomic handle": "shaped after a real palm",
        "carbon steel blades": "stay sharp through a whole hedge",
        "brass fittings": "turned and not cast",
        "drainage holes": "roots never sit in water",
        "safety lock": "closes with the thumb",
        "storage case": "each piece has its own nest",
        "telescopic pole": "reaches the top of the hedge",
        "led light": "shows what your hand does",
        "extra filters": "three more in the box",
        "spare batteries": "change over in seconds",
        "motion sensor": "lights up when you come home",
        "suction mount": "sits tight on glass",
        "non slip backing": "grips the floor without glue",
        "measuring scale": "inches and centimeters, laser cut",
    },
    purpose={
        "raised beds": "the right depth for roots in a box",
        "balcony gardens": "light enough for a railing",
        "pet owners": "hair comes off in one pass",
        "car interiors": "gentle to leather and screens",
        "hard water": "lime does not stick",
        "home repairs": "covers nine jobs out of ten",
        "heavy rain": "drains faster than it pours",
        "small hands": "a short reach and a light spring",
    },
    near={
        "rust proof": "rust colored finish",
        "kink free": "coiled shape",
        "solar powered": "sun shaped",
        "self watering": "watering can style",
        "drainage holes": "closed bottom",
        "carbon steel blades": "plastic blades",
        "brass fittings": "plastic fittings",
        "motion sensor": "manual switch",
        "storage case": "case not included",
        "telescopic pole": "short pole",
        "easy to install": "installer needed",
        "spare batteries": "batteries required",
        "universal fit": "model specific fit",
        "leak proof": "drip style",
    },
)

TOOLS = Department(
    category="tools",
    path="Patio, Lawn, Garage & Tools",
    brands=words(
        "Hobthorn|Greenwardle|Ironmarsh|Spadesparrow Yard|Gardenbrough|Boltwick|Mossgate|"
        "Rivetdale|Thornfield Tool Co|Sunterrace|Wrenchford|Loamleaf Yard"
    ),
    features=_FEATURES,
    notes=(
        "Wear gloves and glasses when you work.",
        "Instructions are printed on the inside of the box.",
        "Every piece is checked by hand before packing.",
        "Spare parts can be ordered one by one.",
        "Clean and dry after use and it will last for years.",
    ),
    costly=("Contractor Grade Kit", "Professional Bundle", "Workshop Complete Set"),
    kinds=(
        kind(
            "garden hoses",
            path="Gardening & Lawn Care > Watering Equipment",
            number="one",
            names="garden hose|soaker hose|hose reel",
            lines="expandable|hybrid rubber|braided",
            features=(
                "kink free|leak proof|heavy duty|frost resistant|uv stable|brass fittings|ergonomic handle|"
                "hard water|raised beds|balcony gardens|easy to install"
            ),
            options=(
                color("green|black|orange|blue|gray"),
                size("25 feet|50 feet|75 feet|100 feet", "length"),
            ),
            price=(21, 84),
            details="for Yard and Patio|with Nozzle|3/4 Inch Thread|Lawn Watering|Flexible|Spring Sale",
            notes=("Drain it before the first frost.", "Bursts are covered for two years."),
            accessory="wall hanger for",
        ),
        kind(
            "planters",
            path="Gardening & Lawn Care > Pots, Planters & Container Accessories",
            number="one",
            names="planter|hanging basket|grow bag",
            lines="terracotta look|felt|ribbed",
            features=(
                "self watering|frost resistant|uv stable|biodegradable|rust proof|drainage holes|balcony gardens|"
                "raised beds|heavy rain|foldable|easy to install"
            ),
            options=(
                color("white|black|terracotta|green|gray|teal"),
                size("6 inch|8 inch|12 inch|16 inch"),
                pack("pack of 1|pack of 3|pack of 5"),
            ),
            price=(9, 46),
            details="for Indoor Plants|Flower Pot|Herb Garden|Porch Decor|Round|with Saucer",
            notes=("Rinse before planting.", "Soil and plants are not included."),
            accessory="rolling stand for",
        ),
        kind(
            "pruning tools",
            path="Gardening & Lawn Care > Hand Tools > Pruning Tools",
            number="many",
            names="pruning shears|hedge clippers|garden scissors",
            lines="bypass|anvil|curved",
            features=(
                "heavy duty|rust proof|foldable|cordless|ergonomic handle|carbon steel blades|safety lock|storage case|"
                "telescopic pole|small hands|raised beds"
            ),
            options=(
                color("red|green|orange|black|purple"),
                style("with holster|with sharpener|tool only", "set"),
            ),
            price=(13, 58),
            details="for Gardening|Clean Cut|Roses and Fruit Trees|Gardener Gift|Lightweight Build|8 Inch",
            notes=("Wipe the blades with oil after use.", "Cuts up to three quarters of an inch."),
            accessory="leather sheath for",
        ),
        kind(
            "outdoor lights",
            path="Lighting > Outdoor Lighting",
            number="many",
            names="path lights|string lights|wall lights",
            lines="lantern|globe|copper",
            features=(
                "solar powered|easy to install|frost resistant|all weather|rust proof|motion sensor|spare batteries|"
                "heavy rain|balcony gardens|uv stable|cordless"
            ),
            options=(
                style("amber|icy|multicolor|pastel", "glow"),
                pack("pack of 2|pack of 4|pack of 6|pack of 8"),
            ),
            price=(16, 66),
            details="for Garden and Yard|Patio Decor|Driveway|Wedding Lights|Dusk to Dawn|Pathway",
            notes=("Leave in the sun for a day first.", "Glows for about eight hours."),
            accessory="ground spikes for",
        ),
        kind(
            "tool sets",
            path="Tools > Hand Tools > Tool Sets",
            number="one",
            names="tool set|screwdriver set|socket set",
            lines="chrome|insulated|precision",
            features=(
                "heavy duty|magnetic|rust proof|cordless|ergonomic handle|storage case|led light|measuring scale|"
                "spare batteries|home repairs|small hands"
            ),
            options=(
                color("red|black|yellow|pink|blue"),
                size("24 pieces|46 pieces|82 pieces|120 pieces"),
            ),
            price=(22, 96),
            details="for Home and Garage|DIY|Gift for Dad|Basic Kit|College Apartment|Mechanic",
            notes=("Sizes are engraved on each piece.", "The lid locks with two latches."),
            accessory="canvas roll for",
        ),
        kind(
            "car vacuum cleaners",
            path="Automotive > Car Care > Vacuums",
            number="one",
            names="car vacuum|handheld vacuum|air duster",
            lines="mini|high suction|wet and dry",
            features=(
                "cordless|heavy duty|foldable|leak proof|led light|extra filters|storage case|ergonomic handle|"
                "pet owners|car interiors|spare batteries"
            ),
            options=(
                color("black|white|red|green|gray"),
                style("with crevice tool|with brush kit|basic", "bundle"),
            ),
            price=(24, 92),
            details="for Car and Home|12V Plug|Quick Clean|Desk Dust|Portable|with Bag",
            notes=("Empty it after each use.", "About as loud as a hair dryer."),
            accessory="replacement filters for",
        ),
        kind(
            "car mounts & mats",
            path="Automotive > Interior Accessories",
            number="one",
            names="phone mount|trunk mat|seat organizer",
            lines="rubber|carbon look|quilted",
            features=(
                "universal fit|easy to install|all weather|heavy duty|magnetic|foldable|suction mount|"
                "non slip backing|led light|pet owners|car interiors"
            ),
            options=(
                color("black|gray|beige|red|brown"),
                style("front|rear|full set", "position"),
            ),
            price=(12, 62),
            details="for Car Truck and SUV|Interior Accessory|Driver Side|Clean Look|Road Trip|Custom Feel",
            notes=("Clean the surface with alcohol first.", "No drilling."),
            accessory="adhesive clips for",
        ),
        kind(
            "shower heads",
            path="Kitchen & Bath Fixtures > Showers",
            number="one",
            names="shower head|kitchen faucet|handheld shower",
            lines="rainfall|high pressure|filtered",
            features=(
                "easy to install|leak proof|rust proof|universal fit|brass fittings|extra filters|led light|"
                "ergonomic handle|hard water|pet owners|suction mount"
            ),
            options=(
                color("chrome|black|nickel|gold|white"),
                size("4 inch|6 inch|8 inch|10 inch"),
            ),
            price=(18, 84),
            details="Bathroom Upgrade|with Hose|Water Saving|Spa Feel|Modern Style|Five Settings",
            notes=("Tape for the thread is in the box.", "Soak in vinegar twice a year."),
            accessory="wall bracket for",
        ),
    ),
)
