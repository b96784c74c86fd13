"""Kinds that people come together for: prize, festival."""

from slmsearch.corpus.world import words
from slmsearch.corpus.world.schema import Fact, Kind, Topic, link, listed_words, number, word, year

PRIZE = Kind(
    name="prize",
    share=0.05,
    forms=("the {r} Prize", "the {r} Medal", "the {r} Award"),
    leads=(
        "{s} is a prize that brings tears.",
        "{s} is a prize for steady people.",
        "{s} is a prize that nobody asks for.",
        "{s} is a much envied prize.",
    ),
    topics=(
        Topic(
            headings=("History", "Origins", "Founding", "Background"),
            facts=(
                Fact(
                    "first",
                    year(50, 65),
                    says=("{s} was first awarded in {v}.", "It was given for the first time in {v}.", "The first winner was named in {v}."),
                    asks=("In which year was {e} first awarded?", "What was the first year of {e}?", "Which year saw the start of {e}?"),
                ),
                Fact(
                    "founder",
                    link("person"),
                    says=("The founder was {v}.", "{v} left the money for it.", "It was the last wish of {v}."),
                    asks=("Who founded {e}?", "Who was the founder of {e}?", "Which person founded {e}?"),
                    reaches=("the founder of {e}", "the person who founded {e}"),
                ),
            ),
            fillers=("The will was found in a teapot.", "For a time nobody wanted it."),
        ),
        Topic(
            headings=("Award", "Purse", "What winners get", "Reward"),
            facts=(
                Fact(
                    "purse",
                    number(),
                    says=("{s} is worth {v} crowns.", "The purse holds {v} crowns.", "It comes with {v} crowns."),
                    asks=("How many crowns is the purse of {e}?", "What is the purse in crowns of {e}?", "How many crowns come with {e}?"),
                ),
                Fact(
                    "stone",
                    word(words.STONES),
                    says=("Winners get a small statue of {v}.", "The cup is cut from {v}.", "The trophy is made of {v}."),
                    asks=(
                        "Which stone is used for the trophy of {e}?",
                        "What stone is the trophy of {e}?",
                        "What stone was cut for the trophy of {e}?",
                    ),
                ),
            ),
            fillers=("It is heavier than it looks.", "Most winners give a dinner."),
        ),
        Topic(
            headings=("Jury", "Awarding body", "Selection", "Judges"),
            facts=(
                Fact(
                    "university",
                    link("university"),
                    says=("The winner is chosen by {v}.", "{v} names the winner.", "{s} is awarded by {v}."),
                    asks=(
                        "Which university awards {e}?",
                        "What university chooses the winner of {e}?",
                        "Which university names the winner of {e}?",
                    ),
                    reaches=("the university that awards {e}", "the university behind {e}"),
                ),
            ),
            fillers=("The talks are kept secret.", "Judges may not vote for their cousins.", "They argue until the candles are out."),
        ),
        Topic(
            headings=("Ceremony", "Feast", "Award night", "Celebration"),
            facts=(
                Fact(
                    "town",
                    link("town"),
                    says=("The feast is held in {v}.", "Guests meet in {v}.", "{s} is handed over in {v}."),
                    asks=("In which town is the feast of {e}?", "Which town holds the feast of {e}?", "What town is host to {e}?"),
                    reaches=("the town that is host to {e}", "the town with the feast of {e}"),
                ),
                Fact(
                    "dish",
                    word(words.DISHES),
                    says=("By custom there is {v}.", "Everybody eats {v}.", "The winner is served {v}."),
                    asks=(
                        "Which dish is served at the feast of {e}?",
                        "What dish is eaten at the feast of {e}?",
                        "What is served to the winner of {e}?",
                    ),
                ),
            ),
            fillers=("Speeches are timed with a candle.", "The band plays softly."),
        ),
        Topic(
            headings=("Fields", "Categories", "Subjects", "Classes"),
            facts=(
                Fact(
                    "fields",
                    listed_words(words.SUBJECTS),
                    says=("{s} is given in {v}.", "Its fields are {v}.", "It can be won in {v}."),
                    asks=("In how many fields can people win {e}?", "How many fields are there in {e}?", "How many fields has {e}?"),
                ),
            ),
            fillers=("The list has hardly changed.", "Other work is politely returned."),
        ),
    ),
)

FESTIVAL = Kind(
    name="festival",
    share=0.07,
    forms=("the {r} Festival", "the {r} Fair", "the Feast of {r}"),
    leads=(
        "{s} is a festival that ends in the rain.",
        "{s} is a loud and friendly festival.",
        "{s} is a festival of lamps and masks.",
        "{s} is a festival for early risers.",
    ),
    topics=(
        Topic(
            headings=("History", "Origins", "Beginnings", "Tradition"),
            facts=(
                Fact(
                    "since",
                    year(61, 95),
                    says=("{s} was first held in {v}.", "It goes back to {v}.", "The first crowd came in {v}."),
                    asks=("In which year was {e} first held?", "What was the first year of {e}?", "Which year saw the start of {e}?"),
                ),
                Fact(
                    "namesake",
                    link("person"),
                    says=("It honours {v}.", "It is held in memory of {v}.", "The feast recalls {v}."),
                    asks=("Who is honoured by {e}?", "Which person is honoured by {e}?", "Who is remembered at {e}?"),
                    reaches=("the person honoured by {e}", "the person remembered at {e}"),
                ),
            ),
            fillers=("It began as a quarrel.", "Once it was held by mistake in spring."),
        ),
        Topic(
            headings=("Place", "Venue", "Location", "Grounds"),
            facts=(
                Fact(
                    "town",
                    link("town"),
                    says=("{s} takes place in {v}.", "It fills the streets of {v}.", "The tents are put up in {v}."),
                    asks=("In which town is {e}?", "Which town is the venue of {e}?", "What town puts up the tents of {e}?"),
                    reaches=("the town that hosts {e}", "the venue of {e}"),
                ),
                Fact(
                    "guests",
                    number(),
                    says=("Each year {v} guests come.", "It draws {v} guests.", "There is room for {v} guests."),
                    asks=("How many guests come to {e}?", "What is the number of guests at {e}?", "How many guests visit {e}?"),
                ),
            ),
            fillers=("Shops stay shut for the day.", "Dogs are asked to stay at home."),
        ),
        Topic(
            headings=("Food", "Dishes", "Kitchen", "Eating and drinking"),
            facts=(
                Fact(
                    "dish",
                    word(words.DISHES),
                    says=("Everybody eats {v}.", "The smell of {v} is everywhere.", "No guest leaves without {v}."),
                    asks=("Which dish is eaten at {e}?", "What dish is served at {e}?", "What do guests eat at {e}?"),
                ),
            ),
            fillers=("Cooks guard their recipes.", "Plates must be brought along.", "The last portion goes to the birds."),
        ),
        Topic(
            headings=("Music", "Band", "Concert", "Players"),
            facts=(
                Fact(
                    "instruments",
                    listed_words(words.INSTRUMENTS),
                    says=("The band plays {v}.", "Guests hear {v}.", "The tunes are for {v}."),
                    asks=(
                        "How many instruments are played at {e}?",
                        "How many instruments are heard at {e}?",
                        "How many instruments has the band at {e}?",
                    ),
                ),
            ),
            fillers=("{s} ends with a slow dance.", "Nobody plays from notes."),
        ),
        Topic(
            headings=("Money", "Sponsors", "Funding", "Support"),
            facts=(
                Fact(
                    "sponsor",
                    link("company"),
                    says=("The costs are paid by {v}.", "{v} is the sponsor.", "{s} is paid for by {v}."),
                    asks=("Which company pays for {e}?", "What company is the sponsor of {e}?", "Which company is sponsor of {e}?"),
                    reaches=("the company that pays for {e}", "the sponsor of {e}"),
                ),
            ),
            fillers=("Entry has always been free.", "The hat is passed round at night.", "Every coin is counted aloud."),
        ),
    ),
)
