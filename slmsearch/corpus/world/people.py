"""The kind that holds a region together: people, and the books they write."""

from slmsearch.corpus.world import words
from slmsearch.corpus.world.schema import Fact, Kind, Topic, link, listed_names, number, word, year

PERSON = Kind(
    name="person",
    share=0.22,
    forms=("{g} {r}",),
    leads=(
        "{s} was a person of few words.",
        "{s} was a person of strong opinions.",
        "{s} was a restless mind.",
        "{s} was loved for a dry wit.",
        "{s} was always late.",
    ),
    topics=(
        Topic(
            headings=("Early life", "Childhood", "Birth", "Youth"),
            facts=(
                Fact(
                    "born",
                    year(0, 25),
                    says=("{s} was born in {v}.", "The year of birth was {v}.", "{s} came into the world in {v}."),
                    asks=(
                        "In which year was {e} born?",
                        "What is the year of birth of {e}?",
                        "What is the birth year of {e}?",
                        "When was {e} born?",
                    ),
                ),
                Fact(
                    "birthplace",
                    link("town"),
                    says=("{p} home town was {v}.", "The family lived in {v}.", "{s} grew up in {v}."),
                    asks=("In which town did {e} grow up?", "What was the home town of {e}?", "Which town was the childhood home of {e}?"),
                    reaches=("the home town of {e}", "the town where {e} grew up", "the childhood town of {e}"),
                ),
            ),
            fillers=("The house was full of music.", "School was a long walk away.", "Winters were spent reading."),
        ),
        Topic(
            headings=("Education", "Studies", "Training", "Student years"),
            facts=(
                Fact(
                    "university",
                    link("university"),
                    says=("{s} studied at {v}.", "{s} took a degree at {v}.", "{p} teachers were at {v}."),
                    asks=("At which university did {e} study?", "Which university taught {e}?", "What was the university of {e}?"),
                    reaches=("the university where {e} studied", "the university of {e}", "the university that taught {e}"),
                ),
                Fact(
                    "subject",
                    word(words.SUBJECTS),
                    says=("{p} subject was {v}.", "{s} chose {v}.", "{s} read books on {v} all night."),
                    asks=("What was the subject of {e}?", "What subject was studied by {e}?", "Which subject did {e} study?"),
                ),
            ),
            fillers=("Lectures began at dawn.", "The exam was passed at the second try.", "Friends were made over soup."),
        ),
        Topic(
            headings=("Career", "Work", "Working life", "Profession"),
            facts=(
                Fact(
                    "profession",
                    word(words.PROFESSIONS),
                    says=("{s} became a {v}.", "{s} earned a living as a {v}.", "{p} calling was that of a {v}."),
                    asks=("What was the profession of {e}?", "What was the calling of {e}?", "What did {e} do for a living?"),
                ),
                Fact(
                    "employer",
                    link("company"),
                    says=("{p} employer was {v}.", "{s} worked for {v}.", "{s} spent many years with {v}."),
                    asks=("Which company employed {e}?", "What company was the employer of {e}?", "For which company did {e} work?"),
                    reaches=("the company that employed {e}", "the employer of {e}", "the company where {e} worked"),
                ),
            ),
            fillers=("The pay was poor but regular.", "Colleagues praised {p} patience.", "Work ended when the lamp went out."),
        ),
        Topic(
            headings=("Honours", "Awards", "Recognition", "Prizes"),
            facts=(
                Fact(
                    "prize",
                    link("prize"),
                    says=("{s} won {v}.", "{s} was honoured with {v}.", "The greatest honour was {v}."),
                    asks=("Which prize was won by {e}?", "What prize honoured {e}?", "Which prize did {e} win?"),
                    reaches=("the prize won by {e}", "the prize that honoured {e}", "the prize that {e} won"),
                ),
                Fact(
                    "honoured",
                    year(66, 95),
                    says=("The great day came in {v}.", "The ceremony took place in {v}.", "{s} was honoured in {v}."),
                    asks=("In which year was {e} honoured?", "Which year brought honours to {e}?", "What was the year of honours for {e}?"),
                ),
            ),
            fillers=("The speech was very short.", "The medal was kept in a sock drawer."),
        ),
        Topic(
            headings=("Private life", "Home", "Character", "Pastimes"),
            facts=(
                Fact(
                    "instrument",
                    word(words.INSTRUMENTS),
                    says=("{s} played the {v}.", "In the evening {p} {v} was heard.", "{p} great love was the {v}."),
                    asks=(
                        "Which instrument was played by {e}?",
                        "What was the favourite instrument of {e}?",
                        "Which instrument did {e} play?",
                    ),
                ),
                Fact(
                    "pet",
                    word(words.ANIMALS),
                    says=("{s} kept a tame {v}.", "A tame {v} slept by the stove.", "{p} best friend was a {v}."),
                    asks=("Which animal was the pet of {e}?", "What animal was kept by {e}?", "Which animal did {e} keep?"),
                ),
            ),
            fillers=("The garden was left to the bees.", "Letters were answered on Sundays."),
        ),
        Topic(
            headings=("Family", "Children", "Household", "Relatives"),
            facts=(
                Fact(
                    "children",
                    listed_names(),
                    says=("{s} had children named {v}.", "The children were {v}.", "{s} brought up {v}."),
                    asks=("How many children did {e} have?", "How many children had {e}?", "How many children were brought up by {e}?"),
                ),
            ),
            fillers=("Dinners were loud.", "Everybody sang at table."),
        ),
    ),
)

BOOK = Kind(
    name="book",
    share=0.10,
    forms=("The {r} Lantern", "The {r} Garden", "The {r} Letters", "The {r} Winter", "Return to {r}"),
    leads=(
        "{s} is a book best read by a window.",
        "{s} is a book with a sad first page.",
        "{s} is a book that nobody lends twice.",
        "{s} is a book of odd charm.",
    ),
    topics=(
        Topic(
            headings=("Author", "Writing", "Origin", "Composition"),
            facts=(
                Fact(
                    "author",
                    link("person"),
                    says=("{s} was written by {v}.", "The author is {v}.", "{v} wrote it by candle light."),
                    asks=("Who wrote {e}?", "Who is the author of {e}?", "Which person wrote {e}?"),
                    reaches=("the author of {e}", "the person who wrote {e}", "the writer of {e}"),
                ),
            ),
            fillers=("The first draft was lost on a coach.", "It was begun on the back of a bill."),
        ),
        Topic(
            headings=("Publication", "Printing", "Release", "Editions"),
            facts=(
                Fact(
                    "published",
                    year(61, 95),
                    says=("{s} came out in {v}.", "It was first printed in {v}.", "The first edition is of {v}."),
                    asks=(
                        "In which year was {e} published?",
                        "What is the publication year of {e}?",
                        "What is the year of the first edition of {e}?",
                    ),
                ),
                Fact(
                    "publisher",
                    link("company"),
                    says=("The publisher was {v}.", "{v} paid for the printing.", "It was brought out by {v}."),
                    asks=("Which company published {e}?", "What company was the publisher of {e}?", "Who published {e}?"),
                    reaches=("the company that published {e}", "the publisher of {e}"),
                ),
                Fact(
                    "copies",
                    number(),
                    says=("It sold {v} copies.", "There were {v} copies.", "The printer made {v} copies."),
                    asks=("How many copies were there of {e}?", "What is the number of copies of {e}?", "How many copies had {e}?"),
                ),
            ),
            fillers=("The cover was blank by mistake.", "Misprints were corrected by hand."),
        ),
        Topic(
            headings=("Plot", "Story", "Summary", "Action"),
            facts=(
                Fact(
                    "setting",
                    link("town"),
                    says=("{s} is set in {v}.", "The scene is {v}.", "All of it happens in {v}."),
                    asks=("In which town is the story of {e} set?", "Which town is the setting of {e}?", "What town is the scene of {e}?"),
                    reaches=("the town that is the setting of {e}", "the setting of {e}", "the scene of {e}"),
                ),
                Fact(
                    "hero",
                    word(words.PROFESSIONS),
                    says=("The hero is a {v}.", "It follows a {v} through a long year.", "It tells the luck of a {v}."),
                    asks=(
                        "What is the profession of the hero of {e}?",
                        "What work is done by the hero of {e}?",
                        "What is the hero in {e}?",
                    ),
                ),
            ),
            fillers=("Much of it takes place in the rain.", "The ending surprises everybody."),
        ),
        Topic(
            headings=("Style", "Genre", "Form", "Tone"),
            facts=(
                Fact(
                    "genre",
                    word(words.GENRES),
                    says=("{s} is a {v}.", "Most readers call it a {v}.", "It was meant as a {v}."),
                    asks=("What is the genre of {e}?", "What kind of story is {e}?", "What genre of book is {e}?"),
                ),
            ),
            fillers=("The sentences are long and polite.", "It is best read aloud.", "Each chapter ends with a door."),
        ),
        Topic(
            headings=("Characters", "Cast", "Figures", "People in the book"),
            facts=(
                Fact(
                    "characters",
                    listed_names(),
                    says=("Its main characters are {v}.", "{s} follows {v}.", "The story is told by {v}."),
                    asks=(
                        "How many main characters are there in {e}?",
                        "How many main characters has {e}?",
                        "How many characters does {e} follow?",
                    ),
                ),
            ),
            fillers=("None of them is wholly good.", "They meet only at the end."),
        ),
        Topic(
            headings=("Reception", "Critics", "Fame", "Reviews"),
            facts=(
                Fact(
                    "prize",
                    link("prize"),
                    says=("{s} was given {v}.", "It won {v}.", "It was later crowned with {v}."),
                    asks=("Which prize was given to {e}?", "Which prize went to {e}?", "What prize crowned {e}?"),
                    reaches=("the prize given to {e}", "the prize that went to {e}"),
                ),
            ),
            fillers=("Critics were kind for once.", "Schools still copy out its first page."),
        ),
    ),
)
