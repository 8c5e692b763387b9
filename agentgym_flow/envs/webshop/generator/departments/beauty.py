"""Skin, hair, make-up and teeth."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import color, pack, scent, size, style

_FEATURES = features(
    being={
        "paraben free": "preserved without any of the parabens",
        "sulfate free": "cleans without stripping what should stay",
        "cruelty free": "never tried on animals at any stage",
        "fragrance free": "nothing added that smells or masks a smell",
        "alcohol free": "does not sting and does not dry out",
        "fast absorbing": "gone in a minute, with no film left behind",
        "dermatologist tested": "checked on volunteers under medical supervision",
        "long lasting": "holds from the morning coffee to the late bus",
        "travel sized": "passes the security check in a carry-on",
        "color safe": "keeps dyed shades as they left the salon",
        "heat activated": "works best under a warm dryer",
        "double ended": "one tip for each step",
        "easy to clean": "rinse it under the tap and let it dry",
        "latex free": "made without natural rubber",
        "fluoride free": "for those who get theirs elsewhere",
    },
    having={
        "tea tree oil": "a few drops with their well-known clean smell",
        "hyaluronic acid": "draws in water and holds it",
        "vitamin c": "a stable form that keeps its strength",
        "argan oil": "pressed cold from roasted kernels",
        "shea butter": "raw and unrefined, melts on contact",
        "aloe vera": "juice from the inner leaf",
        "coconut oil": "virgin quality, never bleached",
        "keratin complex": "fills the rough places along the strand",
        "green tea": "an extract of the first spring leaves",
        "soft bristles": "rounded at the tips",
        "built-in mirror": "unfolds from the lid",
        "ceramic plates": "spread the warmth evenly",
        "bamboo handle": "light, warm to the touch and compostable",
        "fine mist sprayer": "covers evenly with two pumps",
        "charcoal powder": "ground so fine that it does not scratch",
    },
    purpose={
        "sensitive skin": "a short list of gentle ingredients",
        "dry skin": "brings comfort back to tight, flaky places",
        "oily skin": "takes the shine away and leaves it matte",
        "fine lines": "softens what late nights have drawn",
        "damaged hair": "mends split ends from root to tip",
        "curly hair": "defines each ring without crunch",
        "thinning hair": "gives body where there is little of it",
        "dark circles": "evens out the shadow under the eye",
        "nail art": "precise enough for dots and thin stripes",
        "fresh breath": "keeps the mouth pleasant for hours",
        "sensitive teeth": "cold drinks are a pleasure again",
    },
    near={
        "paraben free": "low paraben",
        "sulfate free": "mild sulfates",
        "fragrance free": "light fragrance",
        "alcohol free": "with rubbing alcohol",
        "fast absorbing": "rich slow melt",
        "tea tree oil": "tea rose extract",
        "vitamin c": "citrus scent",
        "coconut oil": "coconut scent",
        "green tea": "white tea petals",
        "sensitive skin": "all skin types",
        "dry skin": "normal skin",
        "damaged hair": "healthy hair",
        "curly hair": "straight hair",
        "fluoride free": "extra fluoride",
        "travel sized": "full sized",
    },
)

BEAUTY = Department(
    category="beauty",
    path="Beauty & Personal Care",
    brands=words(
        "Lunessa Vale|Mirabrook|Ardenelle|Softwillen|Petramoss|Verrabelyn|Calyndra|"
        "Nordglimt|Rosehaven Lab|Ellowyn|Tideblossen|Saffrielle"
    ),
    features=_FEATURES,
    notes=(
        "Store at room temperature and away from direct sun.",
        "Try a little on the inside of the arm before the first use.",
        "The carton is printed with plant inks and can go into the paper bin.",
        "Use within twelve months of opening.",
        "Not what you hoped for? Our team answers every message within a day.",
    ),
    costly=("Salon Professional Set", "Luxury Spa Collection", "Prestige Gift Set"),
    kinds=(
        kind(
            "face moisturizers",
            path="Skin Care > Face > Creams & Moisturizers",
            number="one",
            names="face cream|gel moisturizer|night cream",
            lines="oat milk|rose water|ceramide",
            features=(
                "paraben free|cruelty free|fragrance free|fast absorbing|dermatologist tested|hyaluronic acid|"
                "vitamin c|shea butter|sensitive skin|dry skin|fine lines"
            ),
            options=(
                style("day care|night care|refill jar|gift tin", "style"),
                size("0.5 ounce|1 ounce|1.7 ounce|3.4 ounce"),
            ),
            price=(11, 42),
            details="for Women and Men|Daily Skin Care|Facial Lotion|Non Greasy Feel|Beauty Gift|Gentle Formula",
            notes=("Apply to a clean face in small circles.", "The lid seals with a click."),
            accessory="spatula set for",
        ),
        kind(
            "shampoo & conditioner",
            path="Hair Care > Shampoo & Conditioner",
            number="one",
            names="shampoo|conditioner|hair mask",
            lines="rosemary|honey|biotin",
            features=(
                "sulfate free|paraben free|cruelty free|color safe|tea tree oil|argan oil|keratin complex|"
                "coconut oil|damaged hair|curly hair|thinning hair"
            ),
            options=(
                scent("lavender|citrus|vanilla|eucalyptus|unscented|jasmine"),
                size("8 fl oz|12 fl oz|16 fl oz|32 fl oz"),
            ),
            price=(9, 32),
            details="for Women and Men|Salon Style|Daily Hair Care|Moisturizing|Unisex|Shower Bottle",
            notes=("Massage in, wait two minutes, and rinse well.", "The pump locks for the suitcase."),
            accessory="refill pump for",
        ),
        kind(
            "body lotions",
            path="Skin Care > Body > Moisturizers",
            number="one",
            names="body lotion|body butter|hand cream",
            lines="almond milk|goat milk|cocoa",
            features=(
                "paraben free|fast absorbing|alcohol free|cruelty free|shea butter|aloe vera|vitamin c|"
                "sensitive skin|dry skin|travel sized|dermatologist tested"
            ),
            options=(
                scent("lavender|vanilla|coconut|jasmine|unscented|citrus"),
                size("2 fl oz|6 fl oz|10 fl oz|16 fl oz"),
                pack("pack of 1|pack of 2|pack of 3"),
            ),
            price=(7, 24),
            details="for Women|Winter Care|Rich Moisture|Bath and Body|Silky Finish|Stocking Stuffer",
            notes=("Warm it between the palms first.", "The tube stands on its cap."),
            accessory="dispenser bottle for",
        ),
        kind(
            "makeup brushes",
            path="Tools & Accessories > Makeup Brushes & Tools",
            number="one",
            names="makeup brush set|eyeshadow brush set|blending sponge set",
            lines="vegan|kabuki style|rose quartz",
            features=(
                "cruelty free|easy to clean|travel sized|latex free|soft bristles|bamboo handle|built-in mirror|"
                "double ended|sensitive skin|nail art"
            ),
            options=(
                color("black|white|pink|purple|gold|teal|red"),
                size("5 pieces|8 pieces|12 pieces|16 pieces"),
            ),
            price=(8, 28),
            details="for Women|Professional Look|Foundation and Powder|Beginner Kit|Beauty Tools|with Pouch",
            notes=("Comes in a roll that ties shut.", "Wash before the first use."),
            accessory="drying rack for",
        ),
        kind(
            "hair styling tools",
            path="Hair Care > Styling Tools & Appliances",
            number="one",
            names="hair dryer|flat iron|curling wand",
            lines="ionic|cordless|titan",
            features=(
                "heat activated|travel sized|ceramic plates|keratin complex|argan oil|damaged hair|curly hair|"
                "thinning hair|easy to clean"
            ),
            options=(
                color("black|white|pink|purple|red|teal|gold"),
                style("us plug|dual voltage|gift boxed", "style"),
            ),
            price=(24, 88),
            details="for Women|1 Inch Barrel|Three Heat Settings|Salon Tool|Auto Shut Off|with Glove",
            notes=("Warm in under thirty seconds.", "The cord swivels and is eight feet long."),
            accessory="travel case for",
        ),
        kind(
            "lipsticks",
            path="Makeup > Lips > Lipstick",
            number="one",
            names="liquid lipstick|lip tint|lip gloss",
            lines="matte|velvet|plumping",
            features=(
                "cruelty free|long lasting|fragrance free|paraben free|vitamin c|shea butter|coconut oil|"
                "double ended|built-in mirror|sensitive skin|travel sized"
            ),
            options=(
                color(
                    "nude|red|coral|plum|pink|berry|mauve|brown",
                ),
                pack("pack of 1|pack of 2|pack of 3"),
            ),
            price=(6, 22),
            details="for Women|Smooth Finish|Everyday Makeup|Party Look|Gift for Her|High Pigment",
            notes=("One dip covers both lips.", "Take it off with a little oil on a tissue."),
            accessory="display stand for",
        ),
        kind(
            "toothbrushes & accessories",
            path="Oral Care > Toothbrushes & Accessories",
            number="one",
            names="toothbrush set|whitening kit|tongue cleaner set",
            lines="charcoal gray|family size|soft touch",
            features=(
                "soft bristles|bamboo handle|travel sized|charcoal powder|fluoride free|alcohol free|easy to clean|"
                "fresh breath|sensitive teeth|dermatologist tested"
            ),
            options=(
                color("white|pink|green|purple|orange|teal|yellow"),
                pack("pack of 2|pack of 4|pack of 6|pack of 10"),
            ),
            price=(6, 21),
            details="for Adults|Oral Hygiene|Daily Dental Care|Family Bathroom|Gum Care|Numbered Handles",
            notes=("Change it every three months.", "Rinse and stand upright to dry."),
            accessory="wall holder for",
        ),
        kind(
            "facial serums",
            path="Skin Care > Face > Treatments & Masks > Serums",
            number="one",
            names="face serum|eye serum|facial mist",
            lines="retinal|niacinamide|peptide",
            features=(
                "fragrance free|alcohol free|cruelty free|fast absorbing|hyaluronic acid|vitamin c|green tea|aloe vera|"
                "fine mist sprayer|oily skin|dark circles|fine lines"
            ),
            options=(
                style("glass dropper|airless pump|roller ball|spray top", "applicator"),
                size("0.5 fl oz|1 fl oz|2 fl oz|4 fl oz"),
            ),
            price=(10, 38),
            details="for Women and Men|Glow Care|Morning and Night|Korean Style|Anti Dullness|Light Texture",
            notes=("Two or three drops are enough.", "The bottle is tinted against the light."),
            accessory="storage box for",
        ),
    ),
)
