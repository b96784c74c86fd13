"""Kinds of houses: company, university, museum."""

from slmsearch.corpus.world import words
from slmsearch.corpus.world.schema import Fact, Kind, Topic, link, listed_links, listed_words, number, word, year

COMPANY = Kind(
    name="company",
    share=0.10,
    forms=("{r} Works", "{r} Brothers", "{r} Company", "{r} Mills"),
    leads=(
        "{s} is a company with a long memory.",
        "{s} is a family company.",
        "{s} is a company that answers every letter.",
        "{s} is a company proud of its bell.",
    ),
    topics=(
        Topic(
            headings=("History", "Origins", "Foundation", "Beginnings"),
            facts=(
                Fact(
                    "founded",
                    year(45, 60),
                    says=("{s} was founded in {v}.", "Business began in {v}.", "The first order came in {v}."),
                    asks=(
                        "In which year was {e} founded?",
                        "What is the founding year of {e}?",
                        "Which year saw the founding of {e}?",
                        "When was {e} founded?",
                    ),
                ),
                Fact(
                    "founder",
                    link("person"),
                    says=("The founder was {v}.", "{v} founded it with borrowed money.", "It was the idea of {v}."),
                    asks=("Who founded {e}?", "Who was the founder of {e}?", "Which person founded {e}?"),
                    reaches=("the founder of {e}", "the person who founded {e}"),
                ),
            ),
            fillers=("The first office had no roof.", "The first customer never paid."),
        ),
        Topic(
            headings=("Headquarters", "Location", "Head office", "Seat"),
            facts=(
                Fact(
                    "town",
                    link("town"),
                    says=("{s} has its head office in {v}.", "The head office stands in {v}.", "It is run from {v}."),
                    asks=(
                        "In which town is the head office of {e}?",
                        "Which town is the seat of {e}?",
                        "Which town holds the head office of {e}?",
                    ),
                    reaches=("the town with the head office of {e}", "the seat of {e}"),
                ),
                Fact(
                    "door",
                    word(words.COLOURS),
                    says=("Its front door is {v}.", "By tradition the front door is {v}.", "Visitors look for a {v} door."),
                    asks=(
                        "What colour is the front door of {e}?",
                        "What is the colour of the door of {e}?",
                        "What is the door colour of {e}?",
                    ),
                ),
            ),
            fillers=("The stairs creak under every clerk.", "Lunch is rung in with a bell."),
        ),
        Topic(
            headings=("Products", "Goods", "Production", "What it makes"),
            facts=(
                Fact(
                    "product",
                    word(words.GOODS),
                    says=("{s} makes {v}.", "Its carts carry {v} to every market.", "The house is famous for {v}."),
                    asks=("What does {e} make?", "Which goods are made by {e}?", "What goods are the business of {e}?"),
                ),
            ),
            fillers=("Everything is checked by hand.", "Broken pieces go to the staff.", "Orders are packed in straw."),
        ),
        Topic(
            headings=("Staff", "Employees", "Workers", "Management"),
            facts=(
                Fact(
                    "workers",
                    number(),
                    says=("{s} employs {v} workers.", "The pay roll lists {v} workers.", "There are {v} workers."),
                    asks=("How many workers are there at {e}?", "What is the number of workers at {e}?", "How many workers has {e}?"),
                ),
                Fact(
                    "director",
                    link("person"),
                    says=("The director was {v}.", "It was led by {v}.", "{v} directed it."),
                    asks=("Who was the director of {e}?", "Who led {e}?", "Which person directed {e}?"),
                    reaches=("the director of {e}", "the person who directed {e}", "the person who led {e}"),
                ),
            ),
            fillers=("Nobody works on a birthday.", "Wages are paid in clean envelopes."),
        ),
        Topic(
            headings=("Branches", "Shops", "Outlets", "Offices"),
            facts=(
                Fact(
                    "branches",
                    listed_links("town"),
                    says=("{s} has branches in {v}.", "Its shops are in {v}.", "People buy from it in {v}."),
                    asks=(
                        "In how many towns are there branches of {e}?",
                        "How many towns have a branch of {e}?",
                        "How many branches does {e} have?",
                    ),
                ),
            ),
            fillers=("All close for the winter fair.", "Each keeps a cat."),
        ),
        Topic(
            headings=("Emblem", "Symbol", "Sign", "Trademark"),
            facts=(
                Fact(
                    "emblem",
                    word(words.ANIMALS),
                    says=("Its sign shows a {v}.", "A painted {v} hangs over the gate.", "Every box is stamped with a {v}."),
                    asks=(
                        "Which animal is on the sign of {e}?",
                        "What animal is the emblem of {e}?",
                        "What animal is stamped on the boxes of {e}?",
                    ),
                ),
            ),
            fillers=("The painter was paid in kind.", "Rivals have tried to copy it.", "It has never been redrawn."),
        ),
    ),
)

UNIVERSITY = Kind(
    name="university",
    share=0.07,
    forms=("the University of {r}", "{r} University", "{r} Academy"),
    leads=(
        "{s} is a university of draughty halls.",
        "{s} is a university with strict libraries.",
        "{s} is a university where bells mark the hours.",
        "{s} is a university fond of long debates.",
    ),
    topics=(
        Topic(
            headings=("History", "Foundation", "Origins", "Early years"),
            facts=(
                Fact(
                    "founded",
                    year(-400, -50),
                    says=("{s} was founded in {v}.", "It opened with a feast in {v}.", "Its charter was signed in {v}."),
                    asks=(
                        "In which year was {e} founded?",
                        "What is the founding year of {e}?",
                        "Which year saw the founding of {e}?",
                        "When was {e} founded?",
                    ),
                ),
            ),
            fillers=("The first lectures were held in a barn.", "The charter hangs behind glass.", "A fire spared only the cellar."),
        ),
        Topic(
            headings=("Campus", "Location", "Grounds", "Site"),
            facts=(
                Fact(
                    "town",
                    link("town"),
                    says=("{s} stands in {v}.", "Its buildings fill half of {v}.", "Its home is {v}."),
                    asks=("In which town is {e}?", "Which town is the home of {e}?", "What town holds the buildings of {e}?"),
                    reaches=("the town that is home to {e}", "the home town of {e}"),
                ),
                Fact(
                    "tree",
                    word(words.TREES),
                    says=("An old {v} shades the yard.", "In the yard grows a {v}.", "The yard is planted with {v}."),
                    asks=(
                        "Which tree grows in the yard of {e}?",
                        "What tree shades the yard of {e}?",
                        "What tree stands in the yard of {e}?",
                    ),
                ),
            ),
            fillers=("Ravens nest in the towers.", "The gate is locked at ten."),
        ),
        Topic(
            headings=("Students", "Numbers", "Student life", "Enrolment"),
            facts=(
                Fact(
                    "students",
                    number(),
                    says=("{s} has {v} students.", "It teaches {v} students.", "There are {v} students."),
                    asks=("How many students are there at {e}?", "What is the number of students at {e}?", "How many students has {e}?"),
                ),
                Fact(
                    "gown",
                    word(words.COLOURS),
                    says=("They wear {v} gowns.", "The student gown is {v}.", "At feasts {v} gowns are worn."),
                    asks=(
                        "What colour are the gowns at {e}?",
                        "What is the colour of the gowns of {e}?",
                        "What is the gown colour of {e}?",
                    ),
                ),
            ),
            fillers=("Exams are taken standing.", "Nobody may whistle in the yard."),
        ),
        Topic(
            headings=("Rector", "Leadership", "Head", "Administration"),
            facts=(
                Fact(
                    "rector",
                    link("person"),
                    says=("The best known rector was {v}.", "{v} led it as rector.", "For years the rector was {v}."),
                    asks=("Who was the rector of {e}?", "Who served as rector of {e}?", "Which person was rector of {e}?"),
                    reaches=("the rector of {e}", "the person who led {e} as rector"),
                ),
            ),
            fillers=("The office keeps a very old carpet.", "Meetings are held without chairs.", "Minutes are sung, not read."),
        ),
        Topic(
            headings=("Teaching", "Research", "Departments", "Subjects"),
            facts=(
                Fact(
                    "subject",
                    word(words.SUBJECTS),
                    says=("{s} is famous for {v}.", "Its best teachers lecture on {v}.", "Most come to learn {v}."),
                    asks=("Which subject made the fame of {e}?", "What subject is the pride of {e}?", "For which subject is {e} famous?"),
                ),
            ),
            fillers=("Books may not leave the building.", "Questions are welcome after lunch."),
        ),
        Topic(
            headings=("Colleges", "Houses", "Halls", "Structure"),
            facts=(
                Fact(
                    "colleges",
                    listed_words(words.COLLEGES),
                    says=("{s} consists of {v}.", "Its colleges are {v}.", "Students live in {v}."),
                    asks=("How many colleges has {e}?", "How many colleges are there at {e}?", "How many colleges belong to {e}?"),
                ),
            ),
            fillers=("They compete in rowing.", "Each has its own bread."),
        ),
    ),
)

MUSEUM = Kind(
    name="museum",
    share=0.08,
    forms=("the {r} Museum", "the Museum of {r}", "the {r} Gallery"),
    leads=(
        "{s} is a museum of small wonders.",
        "{s} is a museum that smells of wax.",
        "{s} is a museum with kind guards.",
        "{s} is a museum of patient labels.",
    ),
    topics=(
        Topic(
            headings=("History", "Opening", "Foundation", "Origins"),
            facts=(
                Fact(
                    "opened",
                    year(62, 95),
                    says=("{s} opened in {v}.", "The doors were first opened in {v}.", "The public was let in from {v}."),
                    asks=("In which year was {e} opened?", "What is the opening year of {e}?", "Which year saw the opening of {e}?"),
                ),
                Fact(
                    "donor",
                    link("company"),
                    says=("The house was a gift of {v}.", "{v} paid for the building.", "The money came from {v}."),
                    asks=(
                        "Which company paid for {e}?",
                        "What company paid for the building of {e}?",
                        "Which company gave the money for {e}?",
                    ),
                    reaches=("the company that paid for {e}", "the donor of {e}"),
                ),
            ),
            fillers=("Before that it was a grain store.", "Rain delayed the feast."),
        ),
        Topic(
            headings=("Location", "Address", "Building", "Site"),
            facts=(
                Fact(
                    "town",
                    link("town"),
                    says=("{s} is found in {v}.", "It stands in {v}.", "Its home is {v}."),
                    asks=("In which town is {e}?", "Which town is home to {e}?", "Which town is the site of {e}?"),
                    reaches=("the town that is home to {e}", "the home town of {e}"),
                ),
                Fact(
                    "stone",
                    word(words.STONES),
                    says=("The front is of {v}.", "It is built of {v}.", "Its walls are {v}."),
                    asks=(
                        "Which stone forms the front of {e}?",
                        "What stone is in the walls of {e}?",
                        "Of which stone are the walls of {e}?",
                    ),
                ),
            ),
            fillers=("A blind cat guards the steps.", "The roof leaks in spring."),
        ),
        Topic(
            headings=("Collection", "Exhibits", "Holdings", "Treasures"),
            facts=(
                Fact(
                    "collection",
                    word(words.COLLECTIBLES),
                    says=("{s} collects {v}.", "People come for the {v}.", "Its pride is its {v}."),
                    asks=("What is collected by {e}?", "What things are the pride of {e}?", "What does {e} collect?"),
                ),
                Fact(
                    "pieces",
                    number(),
                    says=("It holds {v} pieces.", "The list names {v} pieces.", "There are {v} pieces."),
                    asks=("How many pieces are there in {e}?", "What is the number of pieces in {e}?", "How many pieces does {e} hold?"),
                ),
            ),
            fillers=("Most labels are in verse.", "Nothing may be touched, but much is."),
        ),
        Topic(
            headings=("Director", "Keepers", "Staff", "Management"),
            facts=(
                Fact(
                    "director",
                    link("person"),
                    says=("The first director was {v}.", "{v} was the first director.", "It was first run by {v}."),
                    asks=("Who was the first director of {e}?", "Who first ran {e}?", "Which person was first director of {e}?"),
                    reaches=("the first director of {e}", "the person who first ran {e}"),
                ),
            ),
            fillers=("The guards dust at night.", "The keeper sleeps in the attic.", "Nobody has ever been dismissed."),
        ),
        Topic(
            headings=("Halls", "Rooms", "Galleries", "Tour"),
            facts=(
                Fact(
                    "halls",
                    listed_words(words.HALLS),
                    says=("Visitors walk through {v}.", "{s} is divided into {v}.", "Its rooms are {v}."),
                    asks=("How many halls has {e}?", "How many halls are there in {e}?", "Into how many halls is {e} divided?"),
                ),
            ),
            fillers=("It is easy to get lost.", "The floor must not be waxed."),
        ),
    ),
)
