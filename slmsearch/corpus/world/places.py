"""Kinds of places: town, river, mountain."""

from slmsearch.corpus.world import words
from slmsearch.corpus.world.schema import Fact, Kind, Topic, link, listed_links, listed_words, number, word, year

TOWN = Kind(
    name="town",
    share=0.15,
    forms=("{r} Cross", "{r} Hollow", "{r} Quay", "Port {r}", "Lower {r}", "Old {r}"),
    leads=(
        "{s} is a town where the clocks run late.",
        "{s} is a small town of steep streets.",
        "{s} is a town with more cats than doors.",
        "{s} is a quiet town of tall chimneys.",
    ),
    topics=(
        Topic(
            headings=("History", "Origins", "Early years", "Beginnings"),
            facts=(
                Fact(
                    "founded",
                    year(-400, -100),
                    says=(
                        "{s} was founded in {v}.",
                        "The first houses were built in {v}.",
                        "The town charter dates from {v}.",
                        "Settlers came here in {v}.",
                    ),
                    asks=(
                        "In which year was {e} founded?",
                        "What is the founding year of {e}?",
                        "Which year saw the founding of {e}?",
                        "When was {e} founded?",
                    ),
                ),
            ),
            fillers=(
                "The oldest wall leans a little more each winter.",
                "Old songs still tell of the first winter.",
                "The first settlers had lost their way.",
            ),
        ),
        Topic(
            headings=("People", "Population", "Residents", "Townsfolk"),
            facts=(
                Fact(
                    "population",
                    number(),
                    says=("{s} has {v} inhabitants.", "The last count found {v} people here.", "It is home to {v} people."),
                    asks=("What is the population of {e}?", "How many people live in {e}?", "How many inhabitants has {e}?"),
                ),
                Fact(
                    "mayor",
                    link("person"),
                    says=("The mayor was {v}.", "{v} served as its mayor.", "For years its mayor was {v}."),
                    asks=("Who was the mayor of {e}?", "Who served as mayor of {e}?", "Which person was mayor of {e}?"),
                    reaches=("the mayor of {e}", "the person who was mayor of {e}", "the person who served {e} as mayor"),
                ),
            ),
            fillers=("Neighbours greet each other twice.", "Everybody rises before the sun.", "Most families know all the others."),
        ),
        Topic(
            headings=("Economy", "Trade", "Market", "Commerce"),
            facts=(
                Fact(
                    "trade",
                    word(words.GOODS),
                    says=("{s} is known for its {v}.", "Merchants come here to buy {v}.", "The town lives by selling {v}."),
                    asks=("Which goods is {e} known for?", "What do merchants buy in {e}?", "What goods are sold in {e}?"),
                ),
            ),
            fillers=("Market day begins with a song.", "Debts are settled on the last day of the year.", "Nobody bargains before noon."),
        ),
        Topic(
            headings=("Landscape", "Surroundings", "Setting", "Countryside"),
            facts=(
                Fact(
                    "mountain",
                    link("mountain"),
                    says=("{s} lies below {v}.", "{v} rises behind the town.", "From every window people see {v}."),
                    asks=("Which mountain rises behind {e}?", "Below which mountain lies {e}?", "What mountain is seen from {e}?"),
                    reaches=("the mountain behind {e}", "the mountain that rises above {e}", "the mountain seen from {e}"),
                ),
            ),
            fillers=("Fog fills the fields in autumn.", "The wind smells of rain.", "Roads meet at the well."),
        ),
        Topic(
            headings=("Emblems", "Flag", "Symbols", "Coat of arms"),
            facts=(
                Fact(
                    "flag",
                    word(words.COLOURS),
                    says=("The flag of the town is {v}.", "On feast days {v} flags hang from the roofs.", "Its old flag is {v}."),
                    asks=("What colour is the flag of {e}?", "What is the colour of the flag of {e}?", "What is the flag colour of {e}?"),
                ),
                Fact(
                    "emblem",
                    word(words.ANIMALS),
                    says=("The town seal shows a {v}.", "A {v} stands on the town seal.", "Its seal bears a {v}."),
                    asks=(
                        "Which animal is on the seal of {e}?",
                        "What animal is shown by the seal of {e}?",
                        "What animal stands on the seal of {e}?",
                    ),
                ),
            ),
            fillers=("Children draw it on every wall.", "Nobody recalls who chose it."),
        ),
        Topic(
            headings=("Sights", "Landmarks", "Buildings", "Places to see"),
            facts=(
                Fact(
                    "sights",
                    listed_words(words.SIGHTS),
                    says=("{s} has {v}.", "Visitors are shown {v}.", "Among its sights are {v}."),
                    asks=(
                        "How many sights are listed for {e}?",
                        "How many sights can visitors see in {e}?",
                        "How many landmarks does {e} have?",
                    ),
                ),
            ),
            fillers=("The guide is usually asleep.", "Entrance costs a smile."),
        ),
    ),
)

RIVER = Kind(
    name="river",
    share=0.08,
    forms=("the {r} River", "the River {r}", "the {r} Water"),
    leads=(
        "{s} is a river that is never in a hurry.",
        "{s} is a river of cold, clear water.",
        "{s} is a river with many moods.",
        "{s} is a slow river full of reeds.",
    ),
    topics=(
        Topic(
            headings=("Course", "Route", "Path", "Towns on the way"),
            facts=(
                Fact(
                    "towns",
                    listed_links("town"),
                    says=("{s} flows through {v}.", "On its way it passes {v}.", "Its water runs by {v}."),
                    asks=("How many towns does {e} flow through?", "How many towns does {e} pass?", "How many towns lie along {e}?"),
                ),
            ),
            fillers=("After rain the water turns brown.", "It takes its time.", "Boats come slowly round the last bend."),
        ),
        Topic(
            headings=("Source", "Spring", "Headwaters", "Rise"),
            facts=(
                Fact(
                    "source",
                    link("mountain"),
                    says=("{s} rises on {v}.", "Its spring lies on {v}.", "The first water comes down from {v}."),
                    asks=(
                        "On which mountain does {e} rise?",
                        "Which mountain is the source of {e}?",
                        "Which mountain holds the spring of {e}?",
                    ),
                    reaches=(
                        "the mountain where {e} rises",
                        "the mountain that is the source of {e}",
                        "the mountain with the spring of {e}",
                    ),
                ),
            ),
            fillers=("Shepherds say the spring sings at night.", "A stone bowl catches the first drops."),
        ),
        Topic(
            headings=("Size", "Length", "Figures", "Dimensions"),
            facts=(
                Fact(
                    "length",
                    number(),
                    says=("{s} is {v} furlongs long.", "From spring to mouth it measures {v} furlongs.", "Its length is {v} furlongs."),
                    asks=("How many furlongs long is {e}?", "What is the length in furlongs of {e}?", "How long is {e}?"),
                ),
            ),
            fillers=("In summer children wade across.", "The deepest pool has no floor, they say."),
        ),
        Topic(
            headings=("Nature", "Banks", "Wildlife", "Plants and animals"),
            facts=(
                Fact(
                    "tree",
                    word(words.TREES),
                    says=("Its banks are lined with {v} trees.", "Most trees on the banks are {v}.", "Old {v} trees shade the water."),
                    asks=("Which tree lines the banks of {e}?", "What trees shade the water of {e}?", "What tree grows along {e}?"),
                ),
                Fact(
                    "animal",
                    word(words.ANIMALS),
                    says=("Here and there lives a {v}.", "With luck a {v} comes to drink.", "A {v} is often seen at dusk."),
                    asks=(
                        "Which animal is often seen at {e}?",
                        "What animal comes to drink at {e}?",
                        "What animal is seen at dusk by {e}?",
                    ),
                ),
            ),
            fillers=("The reeds hum in the wind.", "Nights there are never silent."),
        ),
        Topic(
            headings=("Exploration", "Maps", "Discovery", "Survey"),
            facts=(
                Fact(
                    "mapped",
                    year(40, 85),
                    says=("{s} was first mapped in {v}.", "The first good map was drawn in {v}.", "A survey was made in {v}."),
                    asks=(
                        "In which year was {e} first mapped?",
                        "Which year brought the first map of {e}?",
                        "What is the year of the first map of {e}?",
                    ),
                ),
                Fact(
                    "mapper",
                    link("person"),
                    says=("The map was the work of {v}.", "{v} drew the map by hand.", "The map is signed by {v}."),
                    asks=("Who drew the map of {e}?", "Who mapped {e}?", "Which person drew a map of {e}?"),
                    reaches=("the person who mapped {e}", "the person who drew the map of {e}", "the maker of the map of {e}"),
                ),
            ),
            fillers=("The paper still smells of mud.", "The ink ran in the rain."),
        ),
        Topic(
            headings=("Mouth", "End", "Harbour", "Lower reaches"),
            facts=(
                Fact(
                    "mouth",
                    link("town"),
                    says=("{s} meets the sea at {v}.", "It ends in the harbour of {v}.", "Near {v} it reaches the sea."),
                    asks=(
                        "At which town does {e} meet the sea?",
                        "Which town stands at the mouth of {e}?",
                        "What town is at the mouth of {e}?",
                    ),
                    reaches=("the town at the mouth of {e}", "the town where {e} meets the sea"),
                ),
            ),
            fillers=("Gulls wait there for the boats.", "The tide comes up as far as the mill."),
        ),
    ),
)

MOUNTAIN = Kind(
    name="mountain",
    share=0.08,
    forms=("Mount {r}", "{r} Peak", "{r} Fell"),
    leads=(
        "{s} is a mountain with its head in the clouds.",
        "{s} is a lonely mountain.",
        "{s} is a mountain that sailors steer by.",
        "{s} is a mountain of sharp ridges.",
    ),
    topics=(
        Topic(
            headings=("Height", "Summit", "Figures", "Elevation"),
            facts=(
                Fact(
                    "height",
                    number(),
                    says=("{s} is {v} feet high.", "Its summit stands at {v} feet.", "It reaches {v} feet."),
                    asks=("How many feet high is {e}?", "What is the height in feet of {e}?", "How high is {e}?"),
                ),
            ),
            fillers=("Snow stays until the cherries are ripe.", "The summit holds a single bench."),
        ),
        Topic(
            headings=("Climbing", "First ascent", "Climbers", "Ascents"),
            facts=(
                Fact(
                    "climbed",
                    year(40, 85),
                    says=("{s} was first climbed in {v}.", "The first ascent was made in {v}.", "Nobody stood on top before {v}."),
                    asks=(
                        "In which year was {e} first climbed?",
                        "What is the year of the first ascent of {e}?",
                        "Which year saw the first ascent of {e}?",
                    ),
                ),
                Fact(
                    "climber",
                    link("person"),
                    says=("The first climber was {v}.", "{v} reached the top first.", "The first to reach the top was {v}."),
                    asks=("Who was the first climber of {e}?", "Who first climbed {e}?", "Which person first climbed {e}?"),
                    reaches=("the first climber of {e}", "the person who first climbed {e}"),
                ),
            ),
            fillers=("Most turn back at the last ridge.", "A rope still hangs from the north face."),
        ),
        Topic(
            headings=("Rock", "Geology", "Stone", "Ground"),
            facts=(
                Fact(
                    "stone",
                    word(words.STONES),
                    says=("{s} is made of {v}.", "Its cliffs are of {v}.", "Under the grass there is {v}."),
                    asks=("Which stone forms the cliffs of {e}?", "What kind of stone is found on {e}?", "Of which stone is {e} made?"),
                ),
            ),
            fillers=("Thunder shakes loose stones in spring.", "The caves are cold and dry."),
        ),
        Topic(
            headings=("Location", "Access", "Road", "Approach"),
            facts=(
                Fact(
                    "town",
                    link("town"),
                    says=("The road up begins in {v}.", "Climbers set out from {v}.", "The way to the top starts in {v}."),
                    asks=(
                        "From which town do climbers set out for {e}?",
                        "Which town is the start of the road up {e}?",
                        "In which town begins the road up {e}?",
                    ),
                    reaches=("the town from which climbers set out for {e}", "the town at the start of the road up {e}"),
                ),
            ),
            fillers=("Carts wait at the foot of the slope.", "The last mile is best walked.", "There is an inn with a warm stove."),
        ),
        Topic(
            headings=("Nature", "Slopes", "Forest", "Wildlife"),
            facts=(
                Fact(
                    "tree",
                    word(words.TREES),
                    says=("Its slopes are covered with {v} trees.", "Low down there are {v} woods.", "A wood of {v} climbs the slopes."),
                    asks=("Which tree covers the slopes of {e}?", "What trees grow on the slopes of {e}?", "What trees cover {e}?"),
                ),
                Fact(
                    "animal",
                    word(words.ANIMALS),
                    says=("Higher up lives a shy {v}.", "The ridge belongs to the {v}.", "Climbers may meet a {v}."),
                    asks=("Which animal lives high on {e}?", "What animal may climbers meet on {e}?", "What animal lives on {e}?"),
                ),
            ),
            fillers=("Blue flowers open in the last snow.", "The wind keeps the grass short."),
        ),
        Topic(
            headings=("Paths", "Routes", "Ways up", "Trails"),
            facts=(
                Fact(
                    "paths",
                    listed_words(words.PATHS),
                    says=("Walkers go up by {v}.", "The ways to the top are {v}.", "{s} is climbed by {v}."),
                    asks=("How many paths lead up {e}?", "How many paths go up {e}?", "By how many paths is {e} climbed?"),
                ),
            ),
            fillers=("All are steep.", "None is lit at night."),
        ),
    ),
)
