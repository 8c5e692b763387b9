"""For dogs, cats and their people."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import (
    clothes_color,
    color,
    flavor,
    household_color,
    pack,
    size,
    style,
)

_FEATURES = features(
    being={
        "grain free": "no wheat, corn or rice in the bowl",
        "chew resistant": "tried on a very determined terrier",
        "machine washable": "the cover zips off and goes in warm",
        "escape proof": "a third strap behind the ribs",
        "dishwasher safe": "top rack, every evening",
        "non toxic": "safe if a corner gets swallowed",
        "single ingredient": "one thing on the label, and nothing else",
        "veterinarian recommended": "by those who see the patients",
        "odor control": "traps the smell and not the air",
        "low dust": "no cloud when you pour",
        "no pull": "the clip in front turns the dog around gently",
        "slow feeding": "ridges that turn gulping into licking",
        "hand made": "sewn by four people in one room",
        "water resistant": "shakes dry like the dog",
    },
    having={
        "memory foam": "kind to old hips",
        "reflective stitching": "seen by headlights from afar",
        "non slip bottom": "stays where the dog sleeps",
        "catnip inside": "a full pinch, well sewn in",
        "squeaker inside": "until the surgeon finds it",
        "adjustable straps": "four places to fit it",
        "padded handle": "easy on the fingers",
        "omega 3": "for a coat that shines",
        "real chicken": "first on the list, as it should be",
        "added probiotics": "for a calm stomach",
        "removable cover": "a long zip on the back",
        "bell collar": "the birds will hear it",
        "sisal rope": "claws love it more than the sofa",
        "mesh windows": "air and a view on all sides",
    },
    purpose={
        "senior dogs": "easy on teeth and joints",
        "large breeds": "sized for shepherds and bigger",
        "indoor cats": "keeps a hunter busy at home",
        "anxious pets": "a raised rim to lean against",
        "puppy training": "small rewards in quick order",
        "car rides": "buckles to the seat belt",
        "dental health": "scrubs while they chew",
        "multiple cats": "enough for three at a time",
    },
    near={
        "grain free": "golden grain",
        "machine washable": "wipe down only",
        "memory foam": "foam crumbs",
        "real chicken": "chicken shaped",
        "odor control": "lightly perfumed",
        "catnip inside": "catnip sold separately",
        "squeaker inside": "squeak not included",
        "senior dogs": "active dogs",
        "large breeds": "toy breeds",
        "no pull": "easy pull ring",
        "dishwasher safe": "hand rinse only",
        "indoor cats": "barn cats",
    },
)

PETS = Department(
    category="pets",
    path="Pet Supplies",
    brands=words(
        "Waggleford|Purrington Lane|Barkhollow|Muddlebiscuit|Tailwhistle|Fetchfern|"
        "Whiskermoor|Old Hound Supply|Nibblewood|Pawdale|Snoutley|Kindred Paws Farm"
    ),
    features=_FEATURES,
    notes=(
        "Introduce new things slowly, a little more every day.",
        "A part of each sale goes to a shelter nearby.",
        "Measure twice: the chart is the third picture.",
        "Watch your pet with any new item.",
        "Made in small batches, so colors may differ a little.",
    ),
    costly=("Kennel Pack of 8", "Show Quality Edition", "Breeder's Bulk Case"),
    kinds=(
        kind(
            "dog beds",
            path="Dogs > Beds & Furniture",
            number="one",
            names="dog bed|crate pad|dog sofa",
            lines="orthopedic|faux fur|donut",
            features=(
                "machine washable|chew resistant|water resistant|odor control|hand made|memory foam|non slip bottom|"
                "removable cover|senior dogs|large breeds|anxious pets"
            ),
            options=(household_color(), size("small|medium|large|x-large")),
            price=(22, 88),
            details="Cozy Sleeper|for Dogs and Puppies|Indoor Pet Bed|Plush Top|Calming Look|Raised Rim",
            notes=("Give it a day to rise.", "Fits most standard crates."),
            accessory="spare blanket for",
        ),
        kind(
            "dog treats",
            path="Dogs > Treats",
            number="many",
            names="dog treats|dental chews|training bites",
            lines="oven baked|freeze dried|soft",
            features=(
                "grain free|single ingredient|veterinarian recommended|hand made|non toxic|real chicken|omega 3|"
                "added probiotics|senior dogs|puppy training|dental health|large breeds"
            ),
            options=(
                flavor("peanut butter|salmon|bacon|pumpkin|duck|cranberry"),
                size("4 ounce|8 ounce|16 ounce|32 ounce"),
            ),
            price=(8, 32),
            details="for Dogs|Crunchy Reward|Made in Small Ovens|Healthy Snack|All Sizes|Good Boy Gift",
            notes=("About three calories each.", "Always leave fresh water."),
            accessory="treat pouch for",
        ),
        kind(
            "dog harnesses",
            path="Dogs > Collars, Harnesses & Leashes",
            number="one",
            names="dog harness|dog leash set|dog vest",
            lines="tactical|padded mesh|plaid",
            features=(
                "no pull|escape proof|chew resistant|water resistant|machine washable|reflective stitching|"
                "adjustable straps|padded handle|puppy training|car rides|large breeds"
            ),
            options=(clothes_color(), size("x-small|small|medium|large|x-large")),
            price=(13, 46),
            details="for Dogs|Walking and Hiking|Easy On|Front Clip|Everyday Walks|Breathable",
            notes=("Two fingers should fit under each strap.", "Buckles are rated for two hundred pounds."),
            accessory="name patch for",
        ),
        kind(
            "cat toys",
            path="Cats > Toys",
            number="many",
            names="cat toys|catnip mice|feather wands",
            lines="felt|crinkle|interactive",
            features=(
                "non toxic|hand made|machine washable|chew resistant|catnip inside|bell collar|sisal rope|"
                "squeaker inside|indoor cats|multiple cats|dental health"
            ),
            options=(
                color("rainbow|gray|pink|green|orange|purple"),
                pack("pack of 2|pack of 3|pack of 6|pack of 12"),
            ),
            price=(6, 22),
            details="for Cats and Kittens|Hunting Play|Gift for Cat Lovers|Fun Exercise|Quiet Play|Assorted Shapes",
            notes=("Put them away for a week to make them new.", "No small plastic eyes."),
            accessory="toy basket for",
        ),
        kind(
            "cat trees",
            path="Cats > Beds & Furniture > Trees & Scratchers",
            number="one",
            names="cat tree|scratching post|window perch",
            lines="modern|carpeted|woodland",
            features=(
                "machine washable|non toxic|odor control|hand made|sisal rope|non slip bottom|removable cover|"
                "catnip inside|indoor cats|multiple cats|large breeds"
            ),
            options=(
                household_color(),
                size("24 inch|34 inch|47 inch|60 inch", "height"),
            ),
            price=(28, 118),
            details="for Cats|Climbing Tower|with Hammock|Cat Condo|Sturdy Base|Apartment Friendly Look",
            notes=("Tighten the bolts after a week.", "A strap for the wall is included."),
            accessory="replacement posts for",
        ),
        kind(
            "pet bowls",
            path="Dogs > Feeding & Watering Supplies",
            number="one",
            names="pet bowl|lick mat|water fountain",
            lines="ceramic|elevated|silicone",
            features=(
                "dishwasher safe|non toxic|slow feeding|chew resistant|veterinarian recommended|non slip bottom|"
                "hand made|anxious pets|dental health|multiple cats|senior dogs"
            ),
            options=(
                color("white|teal|gray|pink|green|black"),
                size("1 cup|2 cup|4 cup|8 cup", "capacity"),
            ),
            price=(9, 38),
            details="for Dogs and Cats|Kitchen Friendly Look|Whisker Relief|Food and Water|Wide Rim|Modern Feeder",
            notes=("Rinse daily.", "The rim is rounded on both sides."),
            accessory="floor mat for",
        ),
        kind(
            "cat litter",
            path="Cats > Litter & Housebreaking",
            number="some",
            names="cat litter|clumping litter|litter crystals",
            lines="tofu|walnut shell|pine",
            features=(
                "low dust|odor control|non toxic|single ingredient|veterinarian recommended|indoor cats|multiple cats|"
                "grain free"
            ),
            options=(
                style("unscented|lavender|green tea|baby powder", "variety"),
                size("6 pounds|14 pounds|20 pounds|40 pounds"),
            ),
            price=(11, 42),
            details="Flushable Style|Lightweight Bag|Easy Scoop|Kitten Ready|Low Tracking|for Every Box",
            notes=("Fill the box three inches high.", "Breaks down in the compost."),
            accessory="scoop for",
        ),
        kind(
            "pet carriers",
            path="Dogs > Carriers & Travel Products",
            number="one",
            names="pet carrier|pet backpack|pet stroller",
            lines="soft sided|expandable|airline style",
            features=(
                "escape proof|machine washable|water resistant|odor control|chew resistant|mesh windows|"
                "adjustable straps|padded handle|removable cover|car rides|anxious pets"
            ),
            options=(clothes_color(), size("small|medium|large")),
            price=(24, 92),
            details="for Cats and Small Dogs|Travel Bag|Vet Visits|Folds Flat|Two Openings|Weekend Trips",
            notes=("Let your pet sleep in it first.", "A short tether is sewn inside."),
            accessory="fleece pad for",
        ),
    ),
)
