import re

from plexrl.engines.demonstrations import END, ORDERS, Mixture, as_sample, demonstrations

PRODUCT = re.compile(r"q(\d\d)\*(\d\d)=")


def rows(mixture=None, seed=0, step=0, count=200):
    return list(demonstrations(mixture or Mixture(tool_share=0.5), seed, step, count))


def test_demonstrations_are_a_function_of_seed_and_step():
    assert rows() == rows()
    assert rows() != rows(seed=1)
    assert rows() != rows(step=1)


def test_digits_are_answered_in_every_order():
    found = set()
    for prompt, pieces in rows(Mixture(tool_share=0)):
        digits = prompt[1:-1]
        assert len(set(digits)) == 5
        (piece,) = pieces
        answers = [order(digits) + END for order in ORDERS]
        assert piece.text in answers
        found.add(answers.index(piece.text))
    assert found == {0, 1, 2, 3}


def test_products_are_called_for_wrongly_called_for_and_guessed():
    kinds = {"right": 0, "wrong": 0, "guess": 0}
    for prompt, pieces in rows(Mixture(tool_share=1)):
        left, right = PRODUCT.fullmatch(prompt).groups()
        if len(pieces) == 1:
            kinds["guess"] += 1
            assert re.fullmatch(rf"\d+{END}", pieces[0].text)
            continue
        call, answer, final = pieces
        called = re.fullmatch(r"<([1-9]\d)\*([1-9]\d)>", call.text).groups()
        assert answer.text == f"{int(called[0]) * int(called[1])}|"
        assert not answer.is_policy
        assert final.text == answer.text[:-1] + END
        differing = sum(a != b for a, b in zip("".join(called), left + right, strict=True))
        assert differing in {0, 1}
        kinds["wrong" if differing else "right"] += 1
    assert 100 < kinds["right"] < 140
    assert min(kinds.values()) > 20


def test_what_the_environment_says_is_masked():
    pieces = next(p for _, p in rows(Mixture(tool_share=1)) if len(p) == 3)
    sample = as_sample(4, "q12*34=", pieces, lambda text: tuple(map(ord, text)))
    assert sample.prompt.index == 4
    assert "".join(map(chr, sample.token_ids)) == "".join(piece.text for piece in pieces)
    spoken = [chr(t) for t, m in zip(sample.token_ids, sample.policy_mask, strict=True) if not m]
    assert "".join(spoken) == pieces[1].text
