"""Clothes, shoes and bags."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import clothes_color, clothes_size, color, size, style

_FEATURES = features(
    being={
        "machine washable": "wash cold with like colors and tumble dry low",
        "moisture wicking": "sweat moves to the outside of the fabric and dries there",
        "quick drying": "dry again an hour after the rain or the wash",
        "slim fit": "cut close to the body without pinching",
        "wrinkle free": "looks pressed straight out of the suitcase",
        "water resistant": "light rain rolls off instead of soaking in",
        "fleece lined": "a brushed inner layer keeps the cold out",
        "slip resistant": "the tread grips wet tile and polished floors",
        "hand stitched": "the seams are finished by hand and lie flat",
        "fade resistant": "the dye stays deep through dozens of washes",
        "pill resistant": "the surface stays smooth where the fabric rubs",
        "tag free": "the label is printed on, so nothing scratches",
    },
    having={
        "side pockets": "deep enough for a phone and a set of keys",
        "elastic waistband": "stretches with you and does not roll down",
        "drawstring closure": "tie it as loose or as snug as you like",
        "rubber sole": "bends with the foot and stays quiet indoors",
        "memory foam insole": "molds to the arch after a few wears",
        "arch support": "carries the middle of the foot on long days",
        "long sleeves": "reach the wrist and can be pushed up",
        "adjustable straps": "set the length once and forget about it",
        "button closure": "sturdy buttons, with a spare one sewn inside",
        "hidden zipper": "runs along the seam where nobody sees it",
        "reinforced toe": "an extra layer where holes begin",
        "card slots": "room for eight cards and folded bills",
        "rfid blocking": "a thin shield keeps card readers out",
        "removable hood": "snaps off when the weather turns mild",
        "thumb holes": "keep the cuffs in place on the move",
        "crew neckline": "a classic collar that layers under jackets",
        "reflective trim": "shows up in headlights at dusk",
        "padded collar": "sits softly around the ankle",
    },
    purpose={
        "everyday wear": "simple enough to go with anything in the closet",
        "cold weather": "holds warmth when mornings freeze",
        "travel days": "packs flat and comes out ready",
        "office outfits": "neat enough for meetings, soft enough for the commute",
        "wide feet": "extra room across the toes",
        "summer holidays": "light and airy on the hottest afternoon",
        "long walks": "comfortable from the first mile to the last",
        "sensitive skin": "no harsh finish and no rough seams",
    },
    near={
        "machine washable": "hand wash only",
        "moisture wicking": "moisture barrier",
        "water resistant": "water color print",
        "fleece lined": "fleece look",
        "slip resistant": "easy slip on",
        "slim fit": "relaxed fit",
        "long sleeves": "cap sleeves",
        "elastic waistband": "fixed waistband",
        "memory foam insole": "flat insole",
        "rubber sole": "woven sole",
        "button closure": "snap closure",
        "rfid blocking": "no rfid shield",
    },
)

FASHION = Department(
    category="fashion",
    path="Clothing, Shoes & Jewelry",
    brands=words(
        "Hollenbrook|Tessamere|Varnby|Ostelle & Finch|Quillmoor|Lindwick|"
        "Marrowdale|Pennaby|Corvessa|Sablewick|Thornelle|Brindlecote"
    ),
    features=_FEATURES,
    notes=(
        "Please compare with the size chart before ordering, since cuts vary from brand to brand.",
        "Comes in a simple paper sleeve that makes gift wrapping easy.",
        "Screens differ, so the shade may look slightly lighter or darker in person.",
        "Questions about the fit? Write to us and a person will answer within a day.",
        "If it does not suit you, send it back unworn within thirty days.",
    ),
    costly=("Designer Edition", "Limited Tailor Collection", "Boutique Edition"),
    kinds=(
        kind(
            "women's shorts",
            path="Women > Clothing > Shorts",
            number="many",
            names="biker shorts|bermuda shorts|running shorts",
            lines="cotton blend|ribbed|linen blend",
            features=(
                "machine washable|moisture wicking|quick drying|side pockets|elastic waistband|"
                "drawstring closure|everyday wear|summer holidays|tag free|fade resistant"
            ),
            options=(clothes_color(), clothes_size()),
            price=(12, 36),
            details="for Women|High Rise|5 Inch Inseam|Summer Casual|Gym and Yoga|Plus Size Available",
            notes=("The leg opening lies flat and does not ride up.", "Model is 5 ft 8 and wears a small."),
            accessory="storage bag for",
        ),
        kind(
            "men's shirts",
            path="Men > Clothing > Shirts",
            number="one",
            names="henley shirt|oxford shirt|flannel shirt",
            lines="brushed cotton|bamboo|plaid",
            features=(
                "machine washable|wrinkle free|slim fit|long sleeves|button closure|pill resistant|"
                "office outfits|everyday wear|travel days|tag free"
            ),
            options=(clothes_color(), clothes_size()),
            price=(16, 48),
            details="for Men|Casual Top|Big and Tall|Weekend Style|Gift for Dad|Classic Cut",
            notes=(
                "The hem is curved, so it can be worn in or out.",
                "Weight of the fabric: 180 grams a square meter.",
            ),
            accessory="wooden hanger for",
        ),
        kind(
            "women's sweaters",
            path="Women > Clothing > Sweaters",
            number="one",
            names="cardigan|pullover sweater|tunic sweater",
            lines="chunky knit|cable knit|waffle knit",
            features=(
                "machine washable|pill resistant|long sleeves|button closure|side pockets|thumb holes|"
                "cold weather|office outfits|hand stitched|sensitive skin"
            ),
            options=(clothes_color(), clothes_size()),
            price=(19, 58),
            details="for Women|Oversized Look|Fall Outfits|Open Front Style|Soft Lounge Top|Gift for Her",
            notes=("The cuffs and the hem are ribbed.", "Dry flat to keep the shape."),
            accessory="lint brush for",
        ),
        kind(
            "men's jackets",
            path="Men > Clothing > Jackets & Coats",
            number="one",
            names="bomber jacket|rain jacket|softshell jacket",
            lines="lightweight|quilted|canvas",
            features=(
                "water resistant|fleece lined|removable hood|side pockets|hidden zipper|reflective trim|"
                "cold weather|travel days|machine washable|thumb holes"
            ),
            options=(clothes_color(), clothes_size()),
            price=(34, 98),
            details="for Men|Outdoor Coat|Spring and Fall|Workwear|Hiking Layer|Windbreaker Cut",
            notes=("A loop inside the collar for hanging.", "The inner pocket holds a passport."),
            accessory="repair patch for",
        ),
        kind(
            "women's flats",
            path="Women > Shoes > Flats",
            number="many",
            names="ballet flats|loafers|slip-on shoes",
            lines="suede|knit mesh|faux leather",
            features=(
                "memory foam insole|arch support|rubber sole|slip resistant|padded collar|wide feet|"
                "office outfits|long walks|hand stitched|machine washable"
            ),
            options=(clothes_color(), size("6|6.5|7|7.5|8|8.5|9|10")),
            price=(22, 64),
            details="for Women|Round Toe|Low Heel|Work Shoes|Comfort Walking|Dressy Casual",
            notes=("Between two sizes? Take the larger one.", "The box has a pair of spare heel pads."),
            accessory="shoe trees for",
        ),
        kind(
            "men's sneakers",
            path="Men > Shoes > Fashion Sneakers",
            number="many",
            names="low top sneakers|walking shoes|trail sneakers",
            lines="canvas|knit mesh|nubuck",
            features=(
                "memory foam insole|arch support|rubber sole|slip resistant|reinforced toe|padded collar|"
                "wide feet|long walks|quick drying|reflective trim"
            ),
            options=(clothes_color(), size("8|8.5|9|9.5|10|10.5|11|12")),
            price=(28, 88),
            details="for Men|Lace Up|Gym Tennis|Casual Style|Work and Weekend|Lightweight Build",
            notes=("Flat laces stay tied.", "Weighs about 260 grams a shoe."),
            accessory="spare laces for",
        ),
        kind(
            "wallets",
            path="Accessories > Wallets & Card Cases",
            number="one",
            names="bifold wallet|zip wallet|phone wristlet",
            lines="vegan leather|waxed canvas|full grain leather",
            features=(
                "rfid blocking|card slots|hidden zipper|water resistant|hand stitched|button closure|travel days|"
                "everyday wear|fade resistant"
            ),
            options=(
                color("black|brown|navy|red|green|tan|purple|pink"),
                style("with key ring|with coin pouch|plain", "style"),
            ),
            price=(13, 46),
            details="for Men and Women|Slim Front Pocket|Minimalist|Gift Boxed|Small Purse|Unisex",
            notes=("Closed it measures 4.3 by 3.5 inches.", "The surface gains character over the years."),
            accessory="gift box for",
        ),
        kind(
            "backpack purses",
            path="Luggage & Travel Gear > Backpacks",
            number="one",
            names="daypack|laptop backpack|sling bag",
            lines="nylon|ripstop|corduroy",
            features=(
                "water resistant|adjustable straps|side pockets|hidden zipper|reflective trim|rfid blocking|"
                "travel days|everyday wear|machine washable|fade resistant"
            ),
            options=(clothes_color(), size("10 liter|15 liter|20 liter|26 liter")),
            price=(21, 72),
            details="for Women and Men|College Bookbag|Carry On Bag|Weekender|School and Work|Commuter Bag",
            notes=("A sleeve at the back slides over a suitcase handle.", "Empty weight about 600 grams."),
            accessory="rain cover for",
        ),
    ),
)
