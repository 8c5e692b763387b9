"""Headphones, chargers, cameras and other things with a plug."""

from __future__ import annotations

from agentgym_flow.envs.webshop.generator.kinds import Department, features, kind, words
from agentgym_flow.envs.webshop.generator.options import color, pack, size, style

_FEATURES = features(
    being={
        "noise cancelling": "engines and chatter fade to a whisper",
        "fast charging": "half full after twenty minutes at the wall",
        "water resistant": "splashes and light rain do no harm",
        "dust proof": "sealed ports keep grit outside",
        "shock resistant": "survives a fall from the table",
        "plug and play": "connect it and it works, without any driver",
        "hands free": "talk while you cook or drive",
        "energy efficient": "sips power in standby",
        "tangle free": "a flat jacket that does not knot",
        "wall mountable": "the screws and a template are in the box",
        "motion activated": "wakes when somebody passes",
        "ultra thin": "no thicker than three coins",
        "heavy duty": "rated for ten thousand bends",
        "voice controlled": "just say what you want",
    },
    having={
        "long battery life": "a full weekend between two charges",
        "built-in microphone": "voices come through clear on calls",
        "carrying case": "a hard shell with a zip",
        "stereo sound": "two drivers, tuned as a pair",
        "deep bass": "a tuned port that you can feel",
        "night vision": "clear pictures down to no light at all",
        "touch controls": "tap to pause and swipe to skip",
        "usb-c port": "one modern cable for everything",
        "led indicator": "a small light shows what is left",
        "memory card slot": "takes cards of up to 256 gigabytes",
        "remote control": "batteries are already inside",
        "gold plated connectors": "no rust and no crackle",
        "braided cable": "nylon thread over a strong core",
        "foldable design": "shrinks to the size of a fist",
        "aluminum housing": "cool to the touch and hard to scratch",
        "auto shut off": "goes to sleep when nobody uses it",
    },
    purpose={
        "small rooms": "fills a bedroom without shaking the walls",
        "video calls": "set up with online meetings in mind",
        "home theater": "made to sit under a large screen",
        "road trips": "works from the socket of a car",
        "outdoor use": "sun, wind and sand are no problem",
        "gaming sessions": "no delay between click and sound",
        "home security": "an eye on the door while you are out",
        "older adults": "large marks and only a few buttons",
    },
    near={
        "noise cancelling": "noise muffling pads",
        "fast charging": "overnight charging",
        "water resistant": "water drop design",
        "wall mountable": "desk stand only",
        "long battery life": "battery not included",
        "built-in microphone": "microphone sold separately",
        "usb-c port": "barrel plug",
        "night vision": "daylight vision",
        "touch controls": "button panel",
        "stereo sound": "mono sound",
        "remote control": "remote not included",
    },
)

ELECTRONICS = Department(
    category="electronics",
    path="Electronics",
    brands=words(
        "Voltarrow|Pixelmere|Zentrovox|Kaldera Tech|Orbinelle Tech|Norrpulse|Quantello|"
        "Brightfjord|Auralinx|Tekmoro|Skyhollow|Wattsworth Lane"
    ),
    features=_FEATURES,
    notes=(
        "A printed quick start guide in plain English is in the box.",
        "Two years of warranty with a real person at the other end.",
        "Tested for an hour at the factory before it is packed.",
        "Please keep the box for returns within thirty days.",
        "Recycle old devices at your local collection point.",
    ),
    costly=("Studio Master Edition", "Premium Bundle", "Anniversary Bundle"),
    kinds=(
        kind(
            "headphones",
            path="Headphones > Over-Ear Headphones",
            number="many",
            names="over-ear headphones|on-ear headphones|neckband headphones",
            lines="wireless|studio|retro",
            features=(
                "noise cancelling|fast charging|hands free|tangle free|long battery life|built-in microphone|"
                "carrying case|deep bass|touch controls|foldable design|gaming sessions"
            ),
            options=(color(), style("leather pads|velour pads|cooling pads", "style")),
            price=(24, 96),
            details="for Adults|Lightweight|40mm Drivers|Comfort Fit|with Travel Pouch|for Work and Study",
            notes=("The headband is padded and stretches.", "Weighs 210 grams."),
            accessory="replacement ear pads for",
        ),
        kind(
            "bluetooth speakers",
            path="Portable Audio & Video > Portable Speakers",
            number="one",
            names="bluetooth speaker|party speaker|bookshelf speaker",
            lines="wooden|mini|portable",
            features=(
                "water resistant|dust proof|shock resistant|hands free|long battery life|stereo sound|deep bass|"
                "led indicator|outdoor use|small rooms|memory card slot"
            ),
            options=(color(), size("5 watt|10 watt|20 watt|40 watt", "power")),
            price=(19, 84),
            details="for Home and Garden|Loud and Clear|Gift Idea|with Strap|Desk Sound|360 Degree",
            notes=("Pairs again by itself after the first time.", "Rubber feet keep it in place."),
            accessory="wall bracket for",
        ),
        kind(
            "phone chargers",
            path="Cell Phones & Accessories > Chargers & Power Adapters",
            number="one",
            names="wall charger|car charger|charging dock",
            lines="dual port|compact|multi device",
            features=(
                "fast charging|energy efficient|heavy duty|ultra thin|usb-c port|led indicator|braided cable|"
                "aluminum housing|auto shut off|road trips|foldable design"
            ),
            options=(color("black|white|silver|red|green|pink"), pack("pack of 1|pack of 2|pack of 3|pack of 4")),
            price=(9, 36),
            details="for Phones and Tablets|20W Output|Travel Friendly Size|Safe Charging|Desk and Bedside|Slim Plug",
            notes=("Stops by itself when the device is full.", "Fits most cases of up to three millimeters."),
            accessory="cable clips for",
        ),
        kind(
            "security cameras",
            path="Camera & Photo > Video Surveillance > Surveillance Cameras",
            number="one",
            names="security camera|doorbell camera|baby monitor",
            lines="pan and tilt|dome|2k",
            features=(
                "motion activated|wall mountable|water resistant|plug and play|night vision|memory card slot|"
                "built-in microphone|usb-c port|home security|older adults|voice controlled"
            ),
            options=(color("black|white|silver|green"), pack("pack of 1|pack of 2|pack of 4")),
            price=(26, 98),
            details="for Home|WiFi 2.4 GHz|Wide Angle Lens|Two Way View|App Alerts|Indoor Use",
            notes=("Recording works without a subscription.", "Set up in about five minutes."),
            accessory="mounting bracket for",
        ),
        kind(
            "computer keyboards",
            path="Computers & Accessories > Keyboards, Mice & Accessories",
            number="one",
            names="keyboard|keyboard and mouse set|number pad",
            lines="mechanical|low profile|split",
            features=(
                "plug and play|energy efficient|ultra thin|heavy duty|tangle free|long battery life|usb-c port|"
                "led indicator|aluminum housing|gaming sessions|older adults"
            ),
            options=(color(), style("clicky|tactile|silent", "switch type")),
            price=(18, 79),
            details="for PC and Laptop|Full Size Keys|Quiet Office|Desk Setup|Rainbow Backlight|US Layout",
            notes=("Folding feet set two angles.", "Keycaps pull off for cleaning."),
            accessory="wrist rest for",
        ),
        kind(
            "projectors",
            path="Television & Video > Video Projectors",
            number="one",
            names="mini projector|short throw projector|pocket projector",
            lines="native 1080p|smart|720p",
            features=(
                "energy efficient|wall mountable|plug and play|voice controlled|stereo sound|remote control|"
                "carrying case|auto shut off|home theater|outdoor use|small rooms"
            ),
            options=(
                color("black|white|silver|green|orange"),
                style("with tripod|with screen|unit only", "bundle"),
            ),
            price=(58, 180),
            details="for Movies|120 Inch Picture|Keystone Correction|HDMI Input|Quiet Fan|Gift for Family",
            notes=("The lamp is rated for thirty thousand hours.", "Focus with a wheel at the lens."),
            accessory="ceiling mount for",
        ),
        kind(
            "cables & adapters",
            path="Accessories & Supplies > Audio & Video Accessories > Cables",
            number="one",
            names="hdmi cable|audio cable|extension cable",
            lines="high speed|slim|right angle",
            features=(
                "tangle free|heavy duty|plug and play|gold plated connectors|braided cable|"
                "aluminum housing|home theater|gaming sessions|outdoor use"
            ),
            options=(color("black|white|red|purple|green"), size("3 feet|6 feet|10 feet|15 feet|25 feet", "length")),
            price=(6, 24),
            details="for TV and Console|Male to Male|Office and Home|Signal Tested|with Velcro Tie|Lifetime Support",
            notes=("Both plugs carry a small arrow.", "Ends are sleeved against pulling."),
            accessory="organizer box for",
        ),
        kind(
            "portable power banks",
            path="Cell Phones & Accessories > Portable Power Banks",
            number="one",
            names="power bank|jump starter|camping battery",
            lines="10000mah|20000mah|solar",
            features=(
                "fast charging|water resistant|dust proof|shock resistant|ultra thin|usb-c port|led indicator|"
                "carrying case|road trips|outdoor use|auto shut off"
            ),
            options=(color(), style("with wall plug|with lantern|bare unit", "bundle")),
            price=(17, 69),
            details="for Phone and Tablet|Airline Approved Size|Two Devices at Once|Emergency Kit|Camping Gear|Hiking",
            notes=("Keeps most of its charge for half a year.", "Short cable included."),
            accessory="silicone sleeve for",
        ),
    ),
)
