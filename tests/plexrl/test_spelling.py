from plexrl.spelling import hint


def test_a_close_word_is_suggested():
    assert hint("ascendng", ["ascending", "copy"]) == "did you mean 'ascending'?"


def test_otherwise_all_words_are_listed():
    assert hint("xyz", ["b", "a"]) == "known: a, b"


def test_nothing_known_is_said():
    assert hint("x", []) == "there are none"
