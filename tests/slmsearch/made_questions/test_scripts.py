"""Gaps in sentences of every script: with capitals names are asked for, without them dates, numbers, quoted terms and code."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slmsearch.corpus.library import Library
from slmsearch.corpus.pages import Page
from slmsearch.corpus.questions import content_words
from slmsearch.made_questions.cloze import Excerpt, find_spans, make_clozes, read_code
from slmsearch.made_questions.links import find_facts, make_two_hop
from slmsearch.made_questions.make import Filters, make_questions
from slmsearch.made_questions.sentences import is_english, is_usable, plain_paragraphs, split_sentences
from slmsearch.retrieval.hits import Hit
from tests.slmsearch.made_questions.test_make import WordIndex


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("Завод построил в Самаре инженер Пётр Алёшин в 1911 году.", {"year 1911", "name Самаре", "name Пётр Алёшин"}),
        ("Мост открыли 5 мая 1911 года при большом стечении народа.", {"date 5 мая 1911"}),
        ("Το λιμάνι χτίστηκε από τον Νίκο Καρρά το 1911 με πέτρα.", {"number 1911", "name Νίκο Καρρά"}),
        ("Կամուրջը կառուցեց Արամ Պետրոսյանը մեծ քաղաքում։", {"name Արամ Պետրոսյանը"}),
        ("Most postavil roku 1911 stavitel Čeněk Šťastný ze Žlutic.", {"year 1911", "name Čeněk Šťastný", "name Žlutic"}),
        ("Cây cầu do kỹ sư Đặng Văn Ứng xây bằng đá.", {"name Đặng Văn Ứng"}),
        ("Türkçe adıyla köprüyü 1911 yılında İsmail Şahin taştan yaptı.", {"number 1911", "name İsmail Şahin"}),
        ("Le pont « du Vent » fut bâti le 5 mai 1911 par Éloïse Fauré.", {"date 5 mai 1911", "term du Vent", "name Éloïse Fauré"}),
        ("Die Brücke wurde am 5. Mai 1911 von Karl Benz mit Musik eröffnet.", {"date 5. Mai 1911", "name Karl Benz", "name Musik"}),
        ("Der Wart hat den Schlüssel für das Tor in der „Alten Waage“ gefunden.", {"term Schlüssel", "term Alten Waage"}),
        ("El puente lo abrió en 1911 la alcaldesa Ángela Ñúñez de la villa.", {"year 1911", "name Ángela Ñúñez"}),
        ("ხიდი 1911 წელს ააშენეს „ძველი ქვისგან“ და დღესაც დგას.", {"number 1911", "term ძველი ქვისგან"}),
        ("1911年建成的石桥全长120米，由“东岸会”管理。", {"year 1911", "number 120", "term 东岸会"}),
        ("「古い水車」は1911年5月3日に石で造られ、高さは12メートルである。", {"date 1911年5月3日", "number 12", "term 古い水車"}),
        ("この道具は《北の風》と OpenMill で1,200人に使われた。", {"number 1,200", "term 北の風", "name OpenMill"}),
        ("이 다리는 1911년 5월 3일에 돌로 지어졌고 길이는 120미터이다.", {"date 1911년 5월 3일", "number 120"}),
        ("다리를 지은 사람은 Dan Kim의 제자이며 이름은 남지 않았다.", {"name Dan Kim"}),
        ("بني الجسر في عام 1911 من الحجر ويسمى «جسر الريح» حتى اليوم.", {"year 1911", "term جسر الريح"}),
        ("این پل با سنگ ساخته شد و طول آن ۱۲۰ متر است.", {"number ۱۲۰"}),
        ("یہ پل ہوا کا پل کہلاتا ہے اور 120 میٹر لمبا ہے۔", {"number 120"}),
        ("הגשר נבנה בשנת 1911 מאבן ונקרא „גשר הרוח” עד היום.", {"year 1911", "term גשר הרוח"}),
        ("สะพานหินยาว 120 เมตรและสร้างโดยช่างชื่อ “สมชาย” ในปี 1911", {"number 120", "term สมชาย"}),
        ("यह पुल 120 मीटर लंबा है और इसे “हवा का पुल” कहते हैं।", {"number 120", "term हवा का पुल"}),
    ],
)
def test_every_script_has_gaps(sentence: str, found: set[str]):
    assert is_usable(sentence) and split_sentences(sentence) == [sentence]
    assert {f"{span.kind} {span.text}" for span in find_spans(sentence)} == found


@pytest.mark.parametrize(
    ("paragraph", "sentences"),
    [
        ("桥很长。它有12个拱！是谁建的？不知道。", ["桥很长。", "它有12个拱！", "是谁建的？", "不知道。"]),
        ("彼は「行くぞ。」と言った。橋は古い。", ["彼は「行くぞ。」と言った。", "橋は古い。"]),
        ("Он пришёл в т. ч. с братом. Она ушла.", ["Он пришёл в т. ч. с братом.", "Она ушла."]),
        ("Die Feier ist am 5. Mai in Bonn. Das Tor z. B. Nord ist zu.", ["Die Feier ist am 5. Mai in Bonn.", "Das Tor z. B. Nord ist zu."]),
        ("ما اسم الجسر؟ الجسر قديم. النهر طويل.", ["ما اسم الجسر؟", "الجسر قديم.", "النهر طويل."]),
        ("यह पुल है। वह नदी है।", ["यह पुल है।", "वह नदी है।"]),
        ("สะพานนี้ยาวมาก น้ำลึก 12 เมตร", ["สะพานนี้ยาวมาก", "น้ำลึก 12 เมตร"]),
        ("There are 12. The rest is gone.", ["There are 12.", "The rest is gone."]),
    ],
)
def test_sentences_end_as_their_script_ends_them(paragraph: str, sentences: list[str]):
    assert split_sentences(paragraph) == sentences


@pytest.mark.parametrize(
    "sentence",
    [
        "没有说完的一句话，后面还有",
        "这座桥是谁在很久以前建造的？",
        "这座桥叫作“东岸桥，建于1911年。",
        "短句。",
        "строчная буква в начале ничего не говорит.",
        "Он сказал: «мост стоит на реке уже сто лет.",
    ],
)
def test_what_states_nothing_is_not_asked_about(sentence: str):
    assert not is_usable(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        "После Самары начинается степь, и дорога идёт дальше.",
        "Ακτίνα: Ορισμός του μεγέθους του παραθύρου της ενέργειας.",
        "См. «Устав моста» и другие бумаги в этом же ящике.",
        "次の図 12 と同じ形の橋が北の町にも造られている。",
        "桥的历史请参阅“石桥的历史”这一部分的说明文字。",
        "О том, как его чинят, сказано в разделе 6.3, «Ремонт моста».",
        "Jetzt will sie eine Arbeit John geben, weil er danach fragt.",
        "詳しくは「橋の手入れ」と「橋の歴史」を参照してください。",
        "다리를 고치는 법은 「다리의 역사」를 참고하면 된다.",
        "لمعرفة كيف بني هذا الجسر القديم انظر فقرة «جسر الريح» في الكتاب.",
    ],
)
def test_a_first_word_a_reference_and_nouns_in_a_row_are_no_gap(sentence: str):
    assert find_spans(sentence) == []


def test_english_is_told_by_its_words():
    assert is_english("Rome fell to Alaric in 410.") and is_english("The café of the town was full.")
    assert not is_english("Die Stadt fiel.") or not is_english("Das Tor ist zu.")
    assert not is_english("Мост стоит.") and not is_english("Le pont est là.")


RUSSIAN = [
    Page(
        f"край/{name}/обзор",
        "Обзор",
        f"# Обзор\n\nПосёлок назван по реке {river}. Он возник на левом берегу.\n\n## {head}\n\n"
        f"Здесь работает завод «{plant}», его открыл {founder} в {year} году. Это крупный посёлок на {1200 + i} жителей.\n",
    )
    for i, (name, river, head, plant, founder, year) in enumerate(
        [
            ("алмаз", "Чуйка", "Труд Алмаза", "Красный луч", "Пётр Алёшин", 1911),
            ("берег", "Унжа", "Труд Берега", "Новый маяк", "Фёдор Щукин", 1924),
            ("вершина", "Ишим", "Труд Вершины", "Светлый путь", "Яков Эрлих", 1937),
            ("гавань", "Тобол", "Труд Гавани", "Заря севера", "Юрий Ёлкин", 1949),
        ]
    )
]
CHINESE = [
    Page(
        f"石桥/{name}",
        f"{name}的历史",
        f"# {name}的历史\n\n{name}建于{year}年，全长{length}米。桥头有一座叫“{tower}”的小楼。\n\n"
        f"## 管理\n\n{name}的修缮由“{guild}”负责。\n",
    )
    for name, year, length, tower, guild in [
        ("东岸桥", 1711, 120, "望云楼", "东岸会"),
        ("南门桥", 1823, 135, "听雨楼", "南门会"),
        ("西山桥", 1936, 148, "观星楼", "西山会"),
    ]
]
CHINESE.append(Page("石桥/石匠", "石匠的路", "# 石匠的路\n\n老石匠李三在离开家乡以前写过一本小书，专门讲述东岸桥的历史，至今还在流传。\n"))


class CharacterIndex(WordIndex):
    """Ranks by shared words, or characters where no space parts words."""

    def _rank(self, words, top_k):
        asked = content_words(" ".join(words))
        hits = []
        for page in self.library.pages():
            scored = [(len(asked & content_words(section.text)) / 9 + len(asked & content_words(page.title)), section.id)
                      for section in self.library.sections(page.id)]  # fmt: skip
            score, section_id = max(scored)
            hits.append(Hit(page.id, page.title, score, section_id))
        return sorted(hits, key=lambda hit: (-hit.score, hit.page_id))[:top_k]


def filters_of(pages: list[Page], top_k: int = 4) -> Filters:
    library = Library(pages)
    return Filters(library, CharacterIndex(library), top_k)


def test_a_title_that_many_pages_share_names_no_page():
    made = make_questions(filters_of(RUSSIAN), 0)
    asked = {str(row["question"]): row["answer"] for row in made.rows}
    assert not [question for question in asked if '"Обзор"' in question]
    assert asked[
        'According to "Труд Алмаза": which name fills the gap: "Здесь работает завод «Красный луч», его открыл ____ в 1911 году."'
    ] == ("Пётр Алёшин")
    assert len(asked) >= 8


SHORES = ("old", "northern", "grey", "far")


def test_a_sentence_that_needs_its_page_is_left_out_where_nothing_names_that():
    pages = [Page(f"{i}/a", "Note", f"# Note\n\nIt was built by Rosa Alb{i}ni on the {shore} shore.\n") for i, shore in enumerate(SHORES)]
    assert make_questions(filters_of(pages), 0).rows == ()
    assert [str(row["question"])[:19] for row in make_questions(filters_of(pages[:3]), 0).rows] == ['According to "Note"'] * 3
    pages = [
        Page(f"{i}/a", "Note", f"# Note\n\nPort Alb{i}ni was built by Rosa Hol{i}in on the {shore} shore.\n")
        for i, shore in enumerate(SHORES)
    ]
    assert {str(row["question"])[:16] for row in make_questions(filters_of(pages), 0).rows} == {"Which name fills"}


def test_pages_without_capitals_have_questions_of_one_page_and_of_two():
    filters = filters_of(CHINESE)
    asked = {str(row["question"]): row["answer"] for row in make_questions(filters, 0).rows}
    assert asked['According to "东岸桥的历史": which words fill the gap: "桥头有一座叫“____”的小楼。"'] == "望云楼"
    (row,), _ = make_two_hop(filters_of(CHINESE, 1), 0, 1)
    assert str(row["question"]).startswith(
        'Which name fills the gap: "老石匠李三在离开家乡以前写过一本小书，专门讲述____，至今还在流传。"? On the page'
    )
    assert (row["page_ids"], row["entities"]) == (["石桥/石匠", "石桥/东岸桥"], ["东岸桥的历史"])


PIECES = [
    "В 1911 году", "Пётр Алёшин", "Όμηρος", "«", "»", "„", "“", "”", "「", "」", "《", "》", "年", "1911", "5月3日", "12", "米", "。", "！",
    "في عام", "؟", "מאבן", "สะพาน", "है।", "Թ։", ".", ",", " ", "  ", "\n", "- ", "# ", "`код`", "**", "_", "z. B.", "5. Mai 1911", "%", "์",
]  # fmt: skip


@given(
    st.text(max_size=200) | st.lists(st.sampled_from(PIECES), max_size=60).map("".join) | st.lists(st.sampled_from(PIECES)).map(" ".join)
)
@settings(max_examples=300, deadline=None)
def test_a_gap_stands_in_the_text_and_is_never_empty(text: str):
    for paragraph in plain_paragraphs(text, keep_code=True):
        parts = split_sentences(paragraph)
        assert "".join("".join(parts).split()) == "".join(paragraph.split())
        for marked in parts:
            plain = read_code(marked)[0]
            for draft in make_clozes(Excerpt(marked, "p", "Обзор", "p:p", "Река")):
                assert draft.answer.strip() and draft.answer in plain
                assert draft.question.count("____") >= 1
    for fact in find_facts(Excerpt(text, "p", "", "p:p", "")):
        assert fact.answer.strip() and fact.answer in " ".join(plain_paragraphs(text))


@pytest.mark.parametrize(
    "piece", ["«", "“", "「", '"', "А", "Я ", "год ", "1", "1,", "年", "。", "ก ", "я. Б", "(", "‹", "’А", "์", "`", "[а](", "В 1911 "]
)
def test_long_runs_of_anything_end(piece: str):
    text = piece * 4000
    for paragraph in plain_paragraphs(text, keep_code=True):
        assert not [part for part in split_sentences(paragraph) if is_usable(part) and len(part) > 240]
