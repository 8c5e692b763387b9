"""Training, camping, cycling and games outside."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import clothes_color, color, size, style

_FEATURES = features(
    being={
        "quick drying": "hang it up and it is ready after lunch",
        "sweat proof": "stays put when the pace goes up",
        "tear resistant": "a woven grid stops every small rip",
        "easy to carry": "a strap and a weight that you forget",
        "extra thick": "spares knees and elbows on hard floors",
        "lightweight": "you will check twice whether you packed it",
        "waterproof": "sealed seams and a taped edge",
        "wind resistant": "stands firm when gusts arrive",
        "latex free": "safe for those who are allergic to rubber",
        "easy to set up": "one person and five minutes",
        "odor resistant": "still fresh after a week in the locker",
        "height adjustable": "pull the pin and pick one of seven steps",
        "shock absorbing": "takes the sting out of every landing",
        "machine washable": "cold cycle, then air dry",
    },
    having={
        "non slip grip": "a fine texture that holds when wet",
        "carrying strap": "a padded loop for the shoulder",
        "steel frame": "welded tubes that do not bend",
        "mesh pockets": "see at once what is where",
        "reflective strips": "drivers see you from far away",
        "padded handles": "no more blisters",
        "uv protection": "filters what burns",
        "insulated lining": "ice lasts from dawn to dusk",
        "quick release": "one click and it is off",
        "digital counter": "keeps score so that you need not",
        "ventilation holes": "air flows in at the front and out at the back",
        "extra stakes": "four more than you need",
        "foam core": "keeps its bounce for years",
    },
    purpose={
        "beginners": "forgiving while you learn",
        "home gym": "stores flat under the bed",
        "hot yoga": "more grip as it gets wetter",
        "winter hikes": "tried at twenty below",
        "beach days": "sand falls off with a shake",
        "night rides": "made for early mornings and late returns",
        "physical therapy": "gentle steps back to strength",
        "youth teams": "sized for ages eight to fourteen",
    },
    near={
        "waterproof": "splash aware",
        "extra thick": "slim profile",
        "tear resistant": "tear off tabs",
        "non slip grip": "smooth grip",
        "carrying strap": "strap not included",
        "steel frame": "steel gray look",
        "uv protection": "uv printed logo",
        "insulated lining": "unlined",
        "quick drying": "quick fold",
        "height adjustable": "one height",
        "machine washable": "wipe clean only",
        "easy to set up": "easy to spot",
    },
)

SPORTS = Department(
    category="sports",
    path="Sports & Outdoors",
    brands=words(
        "Ridgewend Trail|Apexwillow|Fjellstone|Summerlund & Sons|Velorani|Strideworth|"
        "Wildpace|Tarnhollow|Kestrel Peak Gear|Boulderby|Pacewold|Longmere Outdoor"
    ),
    features=_FEATURES,
    notes=(
        "Tested for a season by a local club before it went on sale.",
        "A repair patch is hidden in the packing.",
        "Keep dry and out of the sun between uses.",
        "Talk to a doctor before you start a new training plan.",
        "If a part breaks within two years, we send a new one.",
    ),
    costly=("Expedition Edition", "Competition Grade", "Team Set of 6"),
    kinds=(
        kind(
            "yoga mats",
            path="Exercise & Fitness > Yoga > Mats",
            number="one",
            names="yoga mat|exercise mat|folding mat",
            lines="cork|natural rubber|printed",
            features=(
                "extra thick|easy to carry|lightweight|latex free|sweat proof|odor resistant|non slip grip|"
                "carrying strap|hot yoga|home gym|beginners|shock absorbing"
            ),
            options=(
                color("black|purple|teal|pink|green|gray|orange"),
                size("4 mm|6 mm|8 mm|10 mm", "thickness"),
            ),
            price=(17, 64),
            details="for Women and Men|72 Inch Long|Pilates|Workout|Studio Look|with Alignment Marks",
            notes=("Roll it with the top outside.", "Wipe with water and a drop of soap."),
            accessory="carry bag for",
        ),
        kind(
            "resistance bands",
            path="Exercise & Fitness > Strength Training > Resistance Bands",
            number="many",
            names="resistance bands|loop bands|pull up bands",
            lines="fabric|layered|long",
            features=(
                "latex free|tear resistant|sweat proof|easy to carry|odor resistant|non slip grip|padded handles|"
                "quick release|physical therapy|home gym|beginners"
            ),
            options=(
                color("black|purple|teal|pink|green|yellow"),
                size("10 pounds|20 pounds|35 pounds|50 pounds", "resistance"),
            ),
            price=(9, 34),
            details="for Women and Men|Full Body Workout|Set of 3|Glutes and Legs|Gym Quality|with Pouch",
            notes=("A poster with twenty exercises is included.", "Check for cracks now and then."),
            accessory="door anchor for",
        ),
        kind(
            "camping tents",
            path="Outdoor Recreation > Camping & Hiking > Tents & Shelters",
            number="one",
            names="camping tent|beach tent|backpacking tent",
            lines="dome|pop up|ultralight",
            features=(
                "waterproof|wind resistant|tear resistant|easy to set up|lightweight|mesh pockets|extra stakes|"
                "uv protection|steel frame|beach days|winter hikes|beginners"
            ),
            options=(
                color("green|orange|gray|khaki|blue|red"),
                size("1 person|2 person|4 person|6 person", "capacity"),
            ),
            price=(44, 180),
            details="for Camping|Family Trip|Two Doors|with Rain Fly|Three Season|Festival Shelter",
            notes=("Packs into a bag of two feet.", "The floor is a tub with raised edges."),
            accessory="ground sheet for",
        ),
        kind(
            "coolers",
            path="Outdoor Recreation > Camping & Hiking > Coolers",
            number="one",
            names="cooler bag|hard cooler|lunch cooler",
            lines="soft sided|rolling|collapsible",
            features=(
                "easy to carry|lightweight|odor resistant|tear resistant|waterproof|insulated lining|mesh pockets|"
                "padded handles|carrying strap|beach days|youth teams"
            ),
            options=(
                color("gray|teal|red|black|orange|camo"),
                size("12 can|24 can|36 can|48 can", "capacity"),
            ),
            price=(18, 82),
            details="for Picnic and Travel|Keeps Cold|Large Opening|Tailgate|Fishing|Leak Tested",
            notes=("Chill it before you fill it.", "The lid holds four cups."),
            accessory="ice packs for",
        ),
        kind(
            "bike accessories",
            path="Cycling > Accessories",
            number="one",
            names="bike helmet|bike pannier|handlebar bag",
            lines="commuter|mountain|road",
            features=(
                "lightweight|waterproof|wind resistant|easy to set up|shock absorbing|reflective strips|quick release|"
                "ventilation holes|mesh pockets|night rides|youth teams"
            ),
            options=(
                color("black|white|red|teal|yellow|orange"),
                size("small|medium|large"),
            ),
            price=(19, 72),
            details="for Adults|Urban Cycling|Sturdy Build|Easy Fit|Road Safety|E-Bike Ready",
            notes=("All straps can be tightened with one hand.", "Fits most bikes without tools."),
            accessory="rain cover for",
        ),
        kind(
            "dumbbells",
            path="Exercise & Fitness > Strength Training > Weights",
            number="many",
            names="dumbbells|kettlebells|ankle weights",
            lines="neoprene|hexagon|vinyl coated",
            features=(
                "sweat proof|odor resistant|latex free|easy to carry|non slip grip|padded handles|quick release|"
                "home gym|physical therapy|beginners|shock absorbing"
            ),
            options=(
                color("black|pink|purple|teal|gray|red"),
                size("2 pounds|5 pounds|8 pounds|10 pounds|15 pounds", "weight"),
            ),
            price=(15, 69),
            details="for Women and Men|Pair|Strength Training|Cardio|Toning|Floor Friendly",
            notes=("The flat sides keep them from rolling.", "Weight is printed on both ends."),
            accessory="storage rack for",
        ),
        kind(
            "swim goggles",
            path="Water Sports > Swimming > Goggles",
            number="many",
            names="swim goggles|snorkel masks|swim caps",
            lines="racing|wide view|soft fit",
            features=(
                "latex free|lightweight|quick drying|tear resistant|uv protection|quick release|non slip grip|"
                "beach days|youth teams|beginners|waterproof"
            ),
            options=(
                color("clear|black|pink|green|orange|purple"),
                style("adult fit|junior fit|narrow fit", "fit"),
            ),
            price=(8, 32),
            details="for Men and Women|Pool Training|Swim Team|No Pinch|Triathlon|with Case",
            notes=("Rinse with fresh water after salt.", "Do not rub the inside."),
            accessory="hard case for",
        ),
        kind(
            "camping chairs",
            path="Outdoor Recreation > Camping & Hiking > Camping Furniture",
            number="one",
            names="camping chair|stadium seat|folding stool",
            lines="oversized|low back|compact",
            features=(
                "lightweight|tear resistant|easy to carry|easy to set up|height adjustable|quick drying|steel frame|"
                "mesh pockets|carrying strap|beach days|foam core|odor resistant"
            ),
            options=(
                clothes_color(),
                style("with cup holder|with side table|basic", "style"),
            ),
            price=(22, 78),
            details="for Adults|Holds 300 Pounds|Lawn and Garden|Concert Seat|Fishing|Patio",
            notes=("Feet are wide and do not sink in.", "Folds to a stick of three feet."),
            accessory="clip umbrella for",
        ),
    ),
)
