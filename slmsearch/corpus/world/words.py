"""Word lists that values are drawn from.

Every list has at least fifteen entries, so that guessing does not pay; lists are shared between kinds, so that a small
tokenizer meets few different words. None begins with a vowel where a sentence puts an article before it.
"""

PROFESSIONS = (
    "baker", "weaver", "sailor", "painter", "doctor", "lawyer", "mason", "potter", "printer", "teacher",
    "gardener", "composer", "surgeon", "tailor", "miner", "judge", "poet", "beekeeper",
)  # fmt: skip
GOODS = (
    "salt", "rope", "glass", "paper", "cheese", "candles", "clocks", "boots", "barrels", "bells",
    "carpets", "kites", "lamps", "needles", "pianos", "soap", "tea", "wool", "honey", "buttons",
)  # fmt: skip
SUBJECTS = (
    "law", "music", "botany", "history", "geometry", "medicine", "logic", "grammar", "physics", "geology",
    "poetry", "theology", "rhetoric", "optics", "chemistry", "zoology",
)  # fmt: skip
ANIMALS = (
    "heron", "fox", "wolf", "bear", "badger", "hare", "goose", "swan", "raven", "stag",
    "lynx", "hedgehog", "goat", "crane", "mole", "falcon", "beaver", "donkey",
)  # fmt: skip
TREES = (
    "willow", "poplar", "birch", "pine", "maple", "larch", "cedar", "chestnut", "walnut", "hazel",
    "linden", "beech", "rowan", "spruce", "cherry", "juniper",
)  # fmt: skip
STONES = (
    "granite", "marble", "slate", "chalk", "basalt", "limestone", "sandstone", "flint", "quartz", "jasper",
    "pumice", "shale", "clay", "jade", "porphyry",
)  # fmt: skip
COLOURS = (
    "red", "blue", "green", "white", "black", "yellow", "purple", "scarlet", "silver", "golden",
    "brown", "crimson", "violet", "grey", "pink",
)  # fmt: skip
DISHES = (
    "plum cake", "onion soup", "fish pie", "honey bread", "pea soup", "apple cake", "cheese pie", "pepper stew",
    "nut bread", "barley soup", "cherry tart", "mushroom stew", "lemon cake", "pumpkin pie", "garlic bread", "bean stew",
)  # fmt: skip
INSTRUMENTS = (
    "fiddle", "flute", "harp", "drum", "lute", "horn", "trumpet", "viola", "cello", "clarinet",
    "bassoon", "guitar", "zither", "trombone", "piccolo",
)  # fmt: skip
GENRES = (
    "comedy", "tragedy", "mystery", "romance", "satire", "fable", "ballad", "travel tale", "ghost story", "sea story",
    "love story", "war story", "crime story", "fairy tale", "folk tale",
)  # fmt: skip
COLLECTIBLES = (
    "clocks", "masks", "maps", "coins", "dolls", "kites", "keys", "shells", "fossils", "puppets",
    "teapots", "swords", "stamps", "globes", "carpets", "bells",
)  # fmt: skip
SIGHTS = (
    "a clock tower", "a salt market", "a stone gate", "a round chapel", "a water mill", "a fish market", "a glass hall",
    "a rose garden", "a puppet theatre", "a covered bridge", "a bath house", "a lamp tower", "a wool hall", "a bell yard",
    "a paper mill",
)  # fmt: skip
PATHS = tuple(f"the {name} Path" for name in (
    "Goat", "Salt", "Bell", "Wool", "Snow", "Shepherd", "Smoke", "Widow", "Miller", "Sun",
    "Raven", "Honey", "Lamp", "Winter", "Bishop",
))  # fmt: skip
HALLS = tuple(f"the {colour.capitalize()} Hall" for colour in COLOURS)
COLLEGES = tuple(f"{animal.capitalize()} College" for animal in ANIMALS)
COUNT_WORDS = {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}
