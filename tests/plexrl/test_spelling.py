from plexrl.spelling import as_counted, counted, hint


def test_a_close_word_is_suggested():
    assert hint("ascendng", ["ascending", "copy"]) == "did you mean 'ascending'?"


def test_otherwise_all_words_are_listed():
    assert hint("xyz", ["b", "a"]) == "known: a, b"


def test_of_many_words_the_first_are_listed_and_the_others_counted():
    told = hint("xyz", [f"job-{number:03}" for number in range(30)])
    assert told.startswith("known: job-000, job-001,")
    assert told.endswith("job-023 and 6 more")


def test_nothing_known_is_said():
    assert hint("x", []) == "there are none"


def test_one_is_not_plural():
    assert [counted(number, "group") for number in (0, 1, 2)] == ["0 groups", "1 group", "2 groups"]


def test_names_are_sorted_as_people_count():
    assert sorted(["g-10", "g-9", "10", "a"], key=as_counted) == ["10", "a", "g-9", "g-10"]
