"""Which problems of a node become a fact: those that last, once, and their end."""

from koord_agent.domain.reporting.lasting_problems import EVERY_MS, LASTS_MS, MOST_PROBLEMS, LastingProblems


def told(lasting: LastingProblems, seconds: range, *problems: str) -> list[list[str]]:
    facts = [fact for second in seconds for fact in lasting.take(problems, second * 1_000)]
    return [fact.problems for fact in facts]


def test_a_problem_that_lasts_is_told_once_and_so_is_its_end() -> None:
    lasting = LastingProblems()
    assert told(lasting, range(200), "b", "a") == [["a", "b"]]
    assert told(lasting, range(200, 300), "a") == [["a"]]
    assert told(lasting, range(300, 400)) == [[]]
    assert told(lasting, range(400, 500)) == []


def test_what_comes_and_goes_or_changes_its_numbers_is_not_told() -> None:
    lasting = LastingProblems()
    for second in range(300):
        assert lasting.take([f"{second} of 9 failed", *["flaps"][: second % (LASTS_MS // 1_000)]], second * 1_000) == ()


def test_many_problems_are_a_fact_of_bounded_size_at_most_once_a_minute() -> None:
    lasting = LastingProblems()
    facts = 0
    for second in range(0, 600, 5):
        age = second // 40  # one problem ends and another begins every 40 s
        for fact in lasting.take((f"{number:04} {'x' * 1_000}" for number in range(age, age + 50)), second * 1_000):
            facts += 1
            assert len(fact.problems) <= MOST_PROBLEMS
            assert sum(map(len, fact.problems)) <= 20 * 400
    assert 1 < facts <= 600_000 // EVERY_MS


def test_a_clock_that_is_set_back_keeps_no_problem_from_being_told() -> None:
    lasting = LastingProblems()
    assert told(lasting, range(1_000, 1_020), "a") == []
    assert told(lasting, range(100, 140), "a") == [["a"]]
