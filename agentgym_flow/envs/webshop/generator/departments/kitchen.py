"""Pots, knives, cups and small machines for cooking."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import color, pack, size, style

_FEATURES = features(
    being={
        "dishwasher safe": "put it on either rack and forget about it",
        "oven safe": "goes up to four hundred and fifty degrees",
        "microwave safe": "no metal rim and no sparks",
        "bpa free": "nothing leaks into what you eat",
        "leak proof": "a soft ring seals the lid all around",
        "easy to clean": "a wipe with a damp cloth is enough",
        "rust resistant": "stays bright beside the sink",
        "heat resistant": "stays cool where you hold it",
        "freezer safe": "does not crack in the cold",
        "stackable": "nests into its neighbors to save a shelf",
        "shatter resistant": "bounces where others break",
        "lead free": "the glaze is tested in every batch",
        "odor resistant": "yesterday's garlic is gone",
        "battery operated": "works away from the outlet",
    },
    having={
        "non stick coating": "eggs slide off without butter",
        "stainless steel blades": "ground to fifteen degrees on each side",
        "silicone grip": "soft in the hand and safe when wet",
        "glass lid": "see what simmers without letting steam out",
        "wooden handle": "a piece of beech, turned and oiled",
        "double wall": "hot drinks stay hot and hands stay cool",
        "measuring marks": "cups on one side and milliliters on the other",
        "pour spout": "no drips down the side",
        "airtight seal": "keeps flour dry and cookies crisp",
        "non slip base": "does not wander across the counter",
        "digital timer": "counts down and beeps until you come",
        "removable tray": "slides out for the sink",
        "suction feet": "hold fast on stone and steel",
        "pulse mode": "short bursts for chunky results",
    },
    purpose={
        "meal prep": "Sunday's work lasts until Friday",
        "induction stoves": "a magnetic bottom that heats evenly",
        "small kitchens": "lives in the narrow gap beside the fridge",
        "camping trips": "light enough for a backpack",
        "left handed cooks": "works the same from both sides",
        "large families": "feeds six without a second round",
        "iced drinks": "wide enough for whole cubes",
        "sourdough bread": "gives a tall loaf with a crackling crust",
    },
    near={
        "dishwasher safe": "hand wash advised",
        "oven safe": "stovetop only",
        "microwave safe": "not for microwaves",
        "leak proof": "open top",
        "non stick coating": "bare surface",
        "stainless steel blades": "stainless look",
        "glass lid": "metal lid",
        "double wall": "single wall",
        "wooden handle": "wood effect grip",
        "rust resistant": "rustic finish",
        "bpa free": "food grade",
        "airtight seal": "vented cover",
        "induction stoves": "gas stoves",
    },
)

KITCHEN = Department(
    category="kitchen",
    path="Kitchen & Dining",
    brands=words(
        "Ladlewick|Coppercrumb|Emberskell|Whiskerton|Hearthlune|Morselby|Bellpot|"
        "Tavolina Grande|Skillowen|Cinderbrook|Plattermoor|Brassforkley"
    ),
    features=_FEATURES,
    notes=(
        "Wash by hand once before the first use.",
        "Wrapped in recycled paper, without any foam.",
        "A leaflet with six recipes is in the box.",
        "One year of warranty against every defect of the material.",
        "Our cooks use the same one in the test kitchen.",
    ),
    costly=("Chef's Signature Edition", "Restaurant Supply Set", "Complete Wedding Set"),
    kinds=(
        kind(
            "frying pans",
            path="Cookware > Pots & Pans > Skillets",
            number="one",
            names="frying pan|saute pan|grill pan",
            lines="granite look|carbon steel|copper tone",
            features=(
                "dishwasher safe|oven safe|easy to clean|rust resistant|heat resistant|non stick coating|silicone grip|"
                "glass lid|wooden handle|pour spout|induction stoves"
            ),
            options=(
                color("black|red|green|cream|gray|purple"),
                size("8 inch|9.5 inch|11 inch|12 inch"),
            ),
            price=(18, 74),
            details="Stovetop Cookware|for Eggs and Steak|Everyday Pan|Riveted|Kitchen Essential|Even Heat",
            notes=("Let it cool before rinsing.", "The rim is rolled and smooth."),
            accessory="felt protectors for",
        ),
        kind(
            "kitchen knives",
            path="Kitchen Utensils & Gadgets > Cutlery > Knives",
            number="one",
            names="chef knife|bread knife|paring knife set",
            lines="damascus pattern|forged|japanese style",
            features=(
                "dishwasher safe|rust resistant|easy to clean|stainless steel blades|silicone grip|wooden handle|"
                "non slip base|meal prep|left handed cooks|sourdough bread"
            ),
            options=(
                color("black|red|brown|white|blue|green"),
                style("with sheath|with magnetic strip|knife only", "set"),
            ),
            price=(16, 84),
            details="Full Tang|Razor Edge|8 Inch|Kitchen Gift|Home Cook|Balanced Weight",
            notes=("Dry it at once after rinsing.", "Comes in a hinged box."),
            accessory="sharpening stone for",
        ),
        kind(
            "food storage containers",
            path="Storage & Organization > Food Storage",
            number="many",
            names="food storage containers|meal boxes|cereal containers",
            lines="glass|bamboo lidded|square",
            features=(
                "dishwasher safe|microwave safe|bpa free|leak proof|freezer safe|stackable|shatter resistant|"
                "odor resistant|airtight seal|measuring marks|meal prep|small kitchens"
            ),
            options=(
                color("clear|green|pink|gray|teal|red"),
                size("12 ounce|22 ounce|36 ounce|64 ounce"),
                pack("pack of 3|pack of 5|pack of 10"),
            ),
            price=(12, 46),
            details="Pantry Organizer|with Lids|Lunch Ready|Kitchen Set|Snap Lock|Family Value",
            notes=("Lids are marked with their size.", "Labels and a pen are included."),
            accessory="label stickers for",
        ),
        kind(
            "travel mugs",
            path="Dining & Entertaining > Glassware & Drinkware > Travel Mugs",
            number="one",
            names="travel mug|tumbler|water bottle",
            lines="powder coated|ceramic lined|slim",
            features=(
                "dishwasher safe|bpa free|leak proof|easy to clean|odor resistant|double wall|silicone grip|pour spout|"
                "measuring marks|camping trips|iced drinks"
            ),
            options=(
                color("black|white|teal|pink|purple|green|orange"),
                size("12 fl oz|20 fl oz|30 fl oz|40 fl oz"),
            ),
            price=(11, 39),
            details="for Coffee and Tea|Fits Cup Holders|Gift for Coworkers|with Straw|Sweat Free|Commuter Cup",
            notes=("The lid comes apart for washing.", "The mouth is two inches wide."),
            accessory="cleaning brush for",
        ),
        kind(
            "blenders",
            path="Small Appliances > Blenders",
            number="one",
            names="blender|hand mixer|food chopper",
            lines="compact|retro|two speed",
            features=(
                "dishwasher safe|bpa free|easy to clean|battery operated|stainless steel blades|measuring marks|"
                "non slip base|pulse mode|suction feet|meal prep|small kitchens"
            ),
            options=(
                color("black|white|red|mint|pink|silver"),
                style("with spare cup|with travel lid|base set", "bundle"),
            ),
            price=(23, 92),
            details="for Smoothies|Quiet Motor|Kitchen Machine|300 Watts|Baby Food|Countertop",
            notes=("Stops when the lid is open.", "The cord hides in the base."),
            accessory="replacement jar for",
        ),
        kind(
            "bakeware",
            path="Bakeware > Baking Dishes",
            number="one",
            names="baking dish|loaf pan|muffin tin",
            lines="stoneware|carbon steel|enameled",
            features=(
                "dishwasher safe|oven safe|freezer safe|stackable|lead free|rust resistant|"
                "non stick coating|silicone grip|glass lid|large families|sourdough bread"
            ),
            options=(
                color("white|blue|red|green|cream|gray"),
                size("8 x 4 inch|9 x 5 inch|9 x 9 inch|9 x 13 inch"),
            ),
            price=(12, 48),
            details="for Oven Baking|Lasagna and Cakes|Serve and Store|Home Baker|Rectangular|Easy Release Shape",
            notes=("The handles are wide enough for gloves.", "Never add cold water to a hot pan."),
            accessory="carry bag for",
        ),
        kind(
            "coffee makers",
            path="Small Appliances > Coffee, Tea & Espresso > Coffee Makers",
            number="one",
            names="coffee maker|pour over set|milk frother",
            lines="single serve|glass|matte",
            features=(
                "dishwasher safe|bpa free|easy to clean|heat resistant|battery operated|digital timer|removable tray|"
                "measuring marks|wooden handle|pour spout|small kitchens|iced drinks"
            ),
            options=(
                color("black|white|red|silver|mint|cream"),
                size("2 cup|4 cup|8 cup|12 cup", "capacity"),
            ),
            price=(21, 88),
            details="for Ground Coffee|Kitchen Counter|Barista Style|Morning Brew|Gift for Coffee Lovers|Compact Build",
            notes=("Descale once a month.", "A scoop is in the box."),
            accessory="paper filters for",
        ),
        kind(
            "mixing bowls",
            path="Kitchen Utensils & Gadgets > Mixing Bowls",
            number="many",
            names="mixing bowls|salad bowls|colanders",
            lines="nesting|melamine|brushed steel",
            features=(
                "dishwasher safe|bpa free|stackable|shatter resistant|freezer safe|odor resistant|airtight seal|"
                "measuring marks|non slip base|pour spout|meal prep|large families"
            ),
            options=(
                color("red|teal|white|gray|green|yellow"),
                size("3 piece|5 piece|7 piece|9 piece", "set size"),
            ),
            price=(14, 52),
            details="Kitchen Set|for Baking|Serving Ready|Deep Shape|Prep and Serve|House Gift",
            notes=("The rims are wide and easy to grip.", "Sizes from one to five quarts."),
            accessory="spare lids for",
        ),
    ),
)
