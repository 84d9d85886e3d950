"""The order in which an issuer answers, and which tokens it refuses without a check."""

from koordcore.bus.setup.questions import (
    LONGEST_TOKEN,
    MOST_ADDRESSES,
    MOST_PER_ADDRESS,
    MOST_REFUSALS,
    REFUSED_SECONDS,
    FairQuestions,
    Question,
    RefusedTokens,
    why_no_token,
)


def test_addresses_take_turns_however_much_one_of_them_asks() -> None:
    waiting = FairQuestions[str]()
    for number in range(1000):
        waiting.put("10.0.0.1", Question(9.0, f"stranger {number}"))
    waiting.put("10.0.0.2", Question(9.0, "agent"))
    found = [waiting.take(1.0) for _ in range(3)]
    assert [question.asked for question in found if question] == ["stranger 0", "agent", "stranger 1"]


def test_a_question_that_the_server_has_given_up_is_left_out() -> None:
    waiting = FairQuestions[str]()
    for end, asked in ((1.0, "old"), (2.0, "older"), (3.0, "new")):
        waiting.put("a", Question(end, asked))
    assert waiting.take(2.0) == Question(3.0, "new")
    assert waiting.take(2.0) is None
    assert waiting.left_out == 2


def test_questions_that_wait_are_limited_by_address_and_in_all() -> None:
    waiting = FairQuestions[int]()
    for number in range(MOST_PER_ADDRESS + 5):
        waiting.put("a", Question(9.0, number))
    for number in range(MOST_ADDRESSES + 5):
        waiting.put(f"b{number}", Question(9.0, -1))
    assert waiting.take(0.0) == Question(9.0, 5)  # the oldest ones of its address are left out
    assert waiting.left_out == 5 + 6


def test_a_text_that_is_no_jwt_is_refused_without_a_check() -> None:
    for text in (
        "",
        "x",
        "a.b.c",
        "x" * 300,
        f"{'a' * 20}.{'b' * 20}.{'c' * 20} ",
        "ä" * 20,
        f"{'a' * 20}..{'b' * 20}",
    ):
        assert why_no_token(text)
    assert "at most" in why_no_token(f"{'a' * 20}.{'b' * LONGEST_TOKEN}.{'c' * 20}")
    assert why_no_token(f"{'a' * 20}.{'b' * 20}.{'c-_' * 20}") == ""


def test_a_refusal_is_remembered_for_some_seconds_and_few_are() -> None:
    refused = RefusedTokens()
    refused.note("t", "revoked", 10.0)
    assert refused.reason("t", 10.0 + REFUSED_SECONDS / 2) == "revoked"
    assert refused.reason("other", 10.0) == ""
    assert refused.reason("t", 10.0 + REFUSED_SECONDS) == ""
    for number in range(MOST_REFUSALS):
        refused.note(f"t{number}", "x", 10.0)
    assert refused.reason("t", 10.0) == ""
    assert refused.reason("t0", 10.0) == "x"
