"""Food and drink that keeps."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import flavor, pack, size, style

_FEATURES = features(
    being={
        "gluten free": "made on a line that never sees wheat",
        "dairy free": "creamy without a drop of milk",
        "sugar free": "sweet only by nature",
        "low sodium": "less than half the salt of its neighbors on the shelf",
        "non gmo": "grown from seeds as they have always been",
        "usda organic": "certified from the field to the pouch",
        "nut free": "packed in a room without any nuts",
        "keto friendly": "two grams of net carbs in a serving",
        "plant based": "nothing in it has ever had a face",
        "kosher certified": "checked and marked by a recognized board",
        "fair trade": "farmers get a price they can live on",
        "caffeine free": "fine for a late evening",
        "shelf stable": "keeps for a year without a fridge",
        "individually wrapped": "take one and leave the rest fresh",
        "freeze dried": "the water is gone and the taste stays",
        "stone ground": "milled slowly, so it never gets hot",
        "slow roasted": "small drums, low flame, a patient roaster",
    },
    having={
        "high protein": "twelve grams in every serving",
        "dietary fiber": "a quarter of what a day asks for",
        "sea salt": "hand-raked flakes from the coast",
        "real fruit": "pieces that you can see and chew",
        "natural flavors": "tastes like the plant and not like the lab",
        "resealable pouch": "press the strip and it stays crisp",
        "omega 3": "the good fats, from seeds",
        "live cultures": "alive when it reaches you",
        "dark chocolate": "seventy percent and not a bit less",
        "whole grains": "bran and germ stay in",
    },
    purpose={
        "school lunches": "the right size for a small box",
        "busy mornings": "done before the toast pops up",
        "baking projects": "measures and melts without surprises",
        "party platters": "looks pretty and disappears quickly",
        "cold brewing": "rests in the jar overnight",
        "hiking trips": "light in the pack and rich in energy",
        "gift baskets": "wrapped as if you had done it yourself",
    },
    near={
        "gluten free": "gluten aware kitchen",
        "dairy free": "farm fresh milk",
        "sugar free": "less sweet",
        "low sodium": "salted twice",
        "nut free": "nutty taste",
        "usda organic": "naturally grown",
        "keto friendly": "family friendly",
        "plant based": "plant fed",
        "caffeine free": "extra caffeine",
        "high protein": "high energy",
        "dark chocolate": "milk chocolate",
        "whole grains": "refined grains",
        "individually wrapped": "one large bag",
        "real fruit": "fruit shaped",
    },
)

GROCERY = Department(
    category="grocery",
    path="Grocery & Gourmet Food",
    brands=words(
        "Harvest Lanthorn|Old Quern Pantry|Copperquill Farm|Juniperoat Mill|Meadowbarrel|Goldenspoon Hill|"
        "Riverbend Larder|Tuckwell Foods|Mapleknoll|Saltbarn|Wild Thistle Kitchen|Pantrimere"
    ),
    features=_FEATURES,
    notes=(
        "Packed in a facility that is inspected four times a year.",
        "Best before date on the bottom of every pack.",
        "Keep in a cool, dry place and close after use.",
        "Ships in a padded carton so that nothing arrives crushed.",
        "Family recipe, unchanged since the first batch.",
    ),
    costly=("Wholesale Case of 12", "Imported Gourmet Crate", "Bulk Carton of 10"),
    kinds=(
        kind(
            "snack bars",
            path="Snacks & Sweets > Snack Foods > Bars",
            number="many",
            names="granola bars|protein bars|breakfast bars",
            lines="oat|almond|quinoa",
            features=(
                "gluten free|dairy free|sugar free|non gmo|plant based|individually wrapped|high protein|"
                "dietary fiber|real fruit|dark chocolate|school lunches|hiking trips"
            ),
            options=(
                flavor("peanut butter|fig|lemon|cinnamon|salted caramel|banana"),
                size("6 count|8 count|12 count|18 count|24 count"),
            ),
            price=(8, 29),
            details="for Kids and Adults|Chewy|Snack Box|On the Go|Soft Baked|1.4 Ounce Each",
            notes=("Tastes best at room temperature.", "Each bar is baked and cut by hand."),
            accessory="storage tin for",
        ),
        kind(
            "coffee",
            path="Beverages > Coffee, Tea & Cocoa > Coffee",
            number="some",
            names="ground coffee|whole bean coffee|instant coffee",
            lines="highland|espresso roast|breakfast blend",
            features=(
                "fair trade|usda organic|non gmo|slow roasted|kosher certified|shelf stable|natural flavors|"
                "resealable pouch|cold brewing|busy mornings|gift baskets"
            ),
            options=(
                flavor("hazelnut|vanilla|plain|mocha|caramel|cinnamon"),
                size("8 ounce|12 ounce|2 pound|5 pound"),
            ),
            price=(9, 34),
            details="Arabica|Smooth Finish|Rich Aroma|Small Batch|Medium Body|for Drip and French Press",
            notes=("Roasted on Mondays and shipped on Tuesdays.", "One scoop makes a strong cup."),
            accessory="measuring scoop for",
        ),
        kind(
            "tea",
            path="Beverages > Coffee, Tea & Cocoa > Tea",
            number="some",
            names="herbal tea|loose leaf tea|iced tea mix",
            lines="chamomile|hibiscus|rooibos",
            features=(
                "usda organic|caffeine free|sugar free|fair trade|non gmo|kosher certified|individually wrapped|"
                "natural flavors|resealable pouch|cold brewing|gift baskets"
            ),
            options=(
                flavor("ginger|peach|lemon|mint|honey|apple"),
                size("16 count|20 count|40 count|100 count"),
            ),
            price=(7, 23),
            details="Soothing Cup|Afternoon Blend|for Tea Lovers|Hot or Iced|Aromatic|Garden Grown",
            notes=("Steep for five minutes in water off the boil.", "The tin can be refilled."),
            accessory="infuser basket for",
        ),
        kind(
            "nuts & seeds",
            path="Snacks & Sweets > Snack Foods > Nuts & Seeds",
            number="some",
            names="trail mix|mixed seeds|roasted almonds",
            lines="mountain|sunrise|classic",
            features=(
                "low sodium|gluten free|usda organic|non gmo|keto friendly|slow roasted|high protein|omega 3|"
                "sea salt|resealable pouch|hiking trips|party platters"
            ),
            options=(
                flavor("smoky|honey|plain|chili lime|garlic|maple"),
                size("6 ounce|12 ounce|16 ounce|32 ounce"),
            ),
            price=(9, 31),
            details="Crunchy|Healthy Snack|Pantry Staple|for Sharing|Oven Finished|Snack Bowl",
            notes=("Shake the bag before opening.", "About twelve servings a pouch."),
            accessory="serving bowl for",
        ),
        kind(
            "pasta & noodles",
            path="Pantry Staples > Pasta & Noodles",
            number="some",
            names="penne pasta|spaghetti|ramen noodles",
            lines="chickpea|brown rice|lentil",
            features=(
                "gluten free|low sodium|usda organic|plant based|kosher certified|stone ground|shelf stable|"
                "high protein|dietary fiber|school lunches"
            ),
            options=(
                style("spinach|tomato|plain|beet|squid ink", "variety"),
                pack("pack of 1|pack of 2|pack of 4|pack of 6"),
            ),
            price=(7, 26),
            details="Al Dente|Family Dinner|8 Ounce Box|Italian Style|Cooks in Minutes|Pantry Dinner",
            notes=("Stir once after a minute.", "Holds sauce in every ridge."),
            accessory="glass jar for",
        ),
        kind(
            "dried fruits",
            path="Snacks & Sweets > Dried Fruits & Vegetables",
            number="some",
            names="fruit crisps|fruit leather|dried mango",
            lines="orchard|tropical|sun ripened",
            features=(
                "freeze dried|sugar free|usda organic|nut free|plant based|individually wrapped|real fruit|"
                "dietary fiber|resealable pouch|school lunches|baking projects"
            ),
            options=(
                flavor("strawberry|apple|pineapple|cherry|original|chili lime"),
                size("1 ounce|3 ounce|5 ounce|10 ounce"),
            ),
            price=(6, 24),
            details="Chewy Treat|for Toddlers and Adults|Snack Bags|Light and Crunchy|Lunchbox Size|Picked Ripe",
            notes=("Nothing is fried.", "Good on oatmeal and yogurt."),
            accessory="snack cups for",
        ),
        kind(
            "chocolate gifts",
            path="Snacks & Sweets > Candy & Chocolate",
            number="some",
            names="chocolate truffles|chocolate bark|cocoa wafers",
            lines="handmade|belgian style|vegan",
            features=(
                "dairy free|nut free|fair trade|kosher certified|individually wrapped|sugar free|sea salt|"
                "natural flavors|party platters|gift baskets|baking projects"
            ),
            options=(
                flavor("raspberry|orange|hazelnut|mint|coffee|coconut"),
                size("4 pieces|9 pieces|16 pieces|25 pieces"),
            ),
            price=(10, 38),
            details="Gift Box|Thank You Present|Birthday Treat|Holiday Sweets|Silky Center|for Him and Her",
            notes=("Serve a little below room temperature.", "A cooling pack travels along in summer."),
            accessory="ribbon set for",
        ),
        kind(
            "baking flours",
            path="Pantry Staples > Cooking & Baking > Flours & Meals",
            number="some",
            names="baking flour|pancake mix|bread mix",
            lines="oat|spelt|coconut",
            features=(
                "gluten free|keto friendly|usda organic|non gmo|nut free|stone ground|shelf stable|dietary fiber|"
                "whole grains|resealable pouch|baking projects|busy mornings"
            ),
            options=(
                style("fine|coarse|toasted|sprouted", "grind"),
                size("1 pound|2 pound|4 pound|10 pound"),
            ),
            price=(7, 25),
            details="Home Baking|Fluffy Results|Pantry Size|Kitchen Basic|Easy Recipe Inside|Old Fashioned",
            notes=("Sift before you measure.", "A recipe is printed on the back."),
            accessory="flour sifter for",
        ),
    ),
)
