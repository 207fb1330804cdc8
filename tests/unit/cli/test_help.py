import pytest

from tests.unit.cli.calling import Call

VERBS = ("build", "run", "bench", "compare", "check", "inspect", "profile", "demo", "doctor")
COMMANDS = [*([verb] for verb in VERBS), ["zoo", "list"], ["zoo", "pull"]]


def test_help_lists_every_verb(hagane: Call):
    outcome = hagane("--help")
    assert outcome.status == 0
    for verb in (*VERBS, "zoo"):
        assert f"\n  {verb} " in outcome.out


def test_help_lines_are_whole(hagane: Call):
    commands = hagane("--help").out.partition("Commands:")[2]
    assert "..." not in commands


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_each_verb_has_help_with_an_example_and_json(hagane: Call, command: list[str]):
    outcome = hagane(*command, "--help")
    assert outcome.status == 0
    assert "Example: hagane " + " ".join(command) in " ".join(outcome.out.split())
    assert "--json" in outcome.out


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_unknown_options_are_wrong_usage(hagane: Call, command: list[str]):
    outcome = hagane(*command, "--bogus")
    assert outcome.status == 2
    assert "No such option: --bogus" in outcome.err


def test_an_unknown_verb_is_wrong_usage(hagane: Call):
    assert hagane("biuld").status == 2


def test_version(hagane: Call):
    assert hagane("--version").out.startswith("hagane 0.")
