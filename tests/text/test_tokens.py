from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from reclick.errors import LogError
from reclick.text import tokens as tokens_module
from reclick.text.tokens import STOP_WORDS, AdTokens, tokenise, tokens

Row = tuple[str, str, str]


def words(copy: str) -> list[str]:
    return tokens(copy, "", "")


def table(rows: list[Row]) -> pa.Table:
    title, description, url = (
        pa.array([row[field] for row in rows], pa.string()) for field in range(3)
    )
    ids = pa.array([f"ad{row}" for row in range(len(rows))], pa.string())
    return pa.table({"ad": ids, "title": title, "description": description, "display_url": url})


def test_an_ad_has_its_words_with_repeats_and_its_url_last() -> None:
    found = tokens("Fast Plumber", "The plumber for your home", "C.example")
    assert found == ["fast", "plumber", "plumber", "home", "c.example"]


@pytest.mark.parametrize(
    ("copy", "expected"),
    [
        ("Drains, boilers; LEAKS!", ["drains", "boilers", "leaks"]),
        ("'quoted' dogs' rock'n'roll", ["quoted", "dogs", "rock'n'roll"]),
        ("open 24/7 at 9:30", ["open", "24/7", "9:30"]),
        ("50% off, $49.99 or €1,000.", ["50%", "off", "$49.99", "€1,000"]),
        ("save 20％ today", ["save", "20%", "today"]),
        ("same-day up_front e-mail", ["same", "day", "front", "e", "mail"]),
        ("5-star 3d 10am", ["5", "star", "3d", "10am"]),
        ("www.acme.com 1/2 ½", ["www", "acme", "com", "1/2", "1/2"]),
        ("Acme™ Acme® ＡＣＭＥ", ["acme", "acme", "acme"]),
        ("ﬁne STRASSE straße", ["fine", "strasse", "strasse"]),
        ("İstanbul istanbul ISTANBUL", ["istanbul"] * 3),
        ("ışık IŞIK", ["işik"] * 2),
        ("ΟΔΟΣ οδος οδός".replace("ό", "ο"), ["οδοσ"] * 3),
        ("café cafe\u0301 CAFÉ", ["café"] * 3),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("می\u200cخواهم میخواهم", ["میخواهم"] * 2),
        ("co\u00adoperate \ufeffword", ["cooperate", "word"]),
        ("ไทย\u200bดี", ["ไทย", "ดี"]),
        ("東京 格安航空券", ["東京", "格安航空券"]),
        ("서울 배관공", ["서울", "배관공"]),
        ("🔥 hot 👩\u200d🔧 deal ❤\ufe0f 1\ufe0f\u20e3", ["hot", "deal", "1"]),
        ("\u0301 \u0301\u0302", []),
        ("שלום, עולם", ["שלום", "עולם"]),
        ("", []),
    ],
)
def test_words_are_found_in_every_script(copy: str, expected: list[str]) -> None:
    assert words(copy) == expected


@pytest.mark.parametrize("sign", ["'", "’", "‘", "ʼ", "＇", "´", "`"])
def test_an_apostrophe_is_one_letter_however_it_is_typed(sign: str) -> None:
    assert tokens(f"Joe{sign}s don{sign}t", "", "", stop_words=()) == ["joe's", "don't"]
    assert words(f"don{sign}t joe{sign}s") == ["joe's"]


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://A.example/", ["a.example"]),
        ("//a.example", ["a.example"]),
        (" A.Example/Plumber ", ["a.example/plumber"]),
        ("www.a.example/x/", ["www.a.example/x"]),
        ("http://a.example/to/http://b.example", ["a.example/to/http://b.example"]),
        ("MÜNCHEN.example", ["münchen.example"]),
        ("the", ["the"]),
        ("/", []),
        ("", []),
    ],
)
def test_the_display_url_is_one_token(url: str, expected: list[str]) -> None:
    assert tokens("", "", url) == expected
    assert tokenise(table([("", "", url)])).words(0) == expected


def test_stop_words_are_function_words_and_can_be_chosen() -> None:
    assert 100 <= len(STOP_WORDS) <= 180
    assert STOP_WORDS.isdisjoint({"off", "now", "no", "same", "free", "more", "best"})
    assert tokens("the DER Klempner", "", "", stop_words=["Der"]) == ["the", "klempner"]
    assert tokenise(table([("the DER Klempner", "", "")]), stop_words=["Der"]).words(0) == [
        "the",
        "klempner",
    ]


ODD = "abIiİıßſﬁ’'´.,/:%$€0５½_- \t\n\u00a0\u0301\u0307\u034f"
ODD += "\u200b\u200c\u200d\ufe0f\u2028\x00\x1fνΣहि東🔥™"
TEXT = st.one_of(st.text(max_size=30), st.text(ODD, max_size=30))


@given(st.lists(st.tuples(TEXT, TEXT, TEXT), max_size=6))
def test_a_table_has_the_tokens_of_each_of_its_ads(rows: list[Row]) -> None:
    found = tokenise(table(rows))
    assert [found.words(ad) for ad in range(len(found))] == [tokens(*row) for row in rows]


@given(TEXT)
@example("İ\u0300")
@example("İ\u0307")
def test_tokens_of_tokens_are_the_same_tokens(copy: str) -> None:
    found = words(copy)
    assert words(" ".join(found)) == found
    assert all(word and not any(sign.isspace() for sign in word) for word in found)


def test_capitals_and_small_letters_meet_in_every_alphabet_with_cases() -> None:
    letters = [
        chr(code) for code in range(0x250, 0x590) if chr(code).isalpha() and chr(code) != "\u0345"
    ]
    letters += [chr(code) for code in range(0x1E00, 0x2000) if chr(code).isalpha()]
    letters += [chr(code) for code in range(0x41, 0x250) if chr(code).isalpha()]
    assert [
        letter for letter in letters if words(f"b{letter}b".upper()) != words(f"b{letter}b".lower())
    ] == []


def test_codes_are_shared_between_ads() -> None:
    found = tokenise(table([("Cheap plumber", "", "a.example"), ("plumber", "cheap cheap", "")]))
    assert found.vocabulary.to_pylist() == ["cheap", "plumber", "a.example"]
    assert found.offsets.tolist() == [0, 3, 6]
    assert found.token.tolist() == [0, 1, 2, 1, 0, 0]
    assert [str(found.offsets.dtype), str(found.token.dtype)] == ["int64", "int32"]


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [(f"Word{row} plumber", "fast" * (row % 2), f"b{row % 3}.example") for row in range(10)]
    whole = tokenise(table(rows))
    monkeypatch.setattr(tokens_module, "ADS_PER_BLOCK", 3)
    parts = tokenise(pa.concat_tables([table(rows)[:4], table(rows)[4:]]))
    assert [parts.words(ad) for ad in range(10)] == [whole.words(ad) for ad in range(10)]


def test_other_string_types_and_no_ads_at_all_are_fine() -> None:
    ads = table([("Fast plumber", "now", "a.example")])
    for kind in (pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        cast = pa.table({name: ads[name].cast(pa.string()).cast(kind) for name in ads.column_names})
        assert tokenise(cast).to_tables() == tokenise(ads).to_tables()
    assert len(tokenise(ads[:0])) == 0
    assert tokenise(ads[:0]).offsets.tolist() == [0]


def test_saving_as_tables_keeps_everything() -> None:
    kept = tokenise(table([("Fast plumber", "", "a.example"), ("", "", ""), ("fast", "fast", "")]))
    back = AdTokens.from_tables(kept.to_tables())
    assert [back.words(ad) for ad in range(3)] == [
        ["fast", "plumber", "a.example"],
        [],
        ["fast", "fast"],
    ]
    assert back.to_tables() == kept.to_tables()
    assert [str(back.offsets.dtype), str(back.token.dtype)] == ["int64", "int32"]


def test_a_bad_table_is_refused() -> None:
    ads = table([("a", "b", "c"), ("a", "b", "c")])
    with pytest.raises(LogError, match="no column 'title'"):
        tokenise(ads.drop_columns("title"))
    with pytest.raises(LogError, match="1 nulls in column 'title'"):
        tokenise(ads.set_column(1, "title", pa.array(["a", None])))
    with pytest.raises(LogError, match=r"such as 'x' \(2 times\)"):
        tokenise(ads.set_column(0, "ad", pa.array(["x", "x"])))
    with pytest.raises(LogError, match="1 nulls in column 'ad'"):
        tokenise(ads.set_column(0, "ad", pa.array(["x", None])))


def test_a_piece_of_text_is_read_once_however_many_ads_hold_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    find_words = tokens_module._words

    def note(piece: str) -> list[str]:
        read.append(piece)
        return find_words(piece)

    monkeypatch.setattr(tokens_module, "_words", note)
    monkeypatch.setattr(tokens_module, "ADS_PER_BLOCK", 4)
    tokenise(table([("Fast plumber", f"Number {row % 2}", "a.example") for row in range(20)]))
    assert sorted(read) == ["0", "1", "Fast", "Number", "plumber"]
