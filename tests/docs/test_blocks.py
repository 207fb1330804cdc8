"""Every command and code block in README and docs runs and prints what the page says."""

from pathlib import Path

import pytest

from tests.docs.blocks import ROOT, Step, agrees, pages, run_step, steps_of

PAGES = [page for page in pages() if page.exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page(page: Path, tmp_path: Path):
    for step in steps_of(page):
        printed = run_step(step, tmp_path)
        assert not step.checked or agrees(step.expected, printed), _report(page, step, printed)


def _report(page: Path, step: Step, printed: str) -> str:
    shown = "\n".join(step.expected)
    return (
        f"{page.name}:{step.line + 1} prints\n{printed}\nthe page shows\n{shown}\n"
        f"next: python -m tests.docs.blocks {page.relative_to(ROOT)} writes the present output into the page"
    )


def test_outputs_agree_loosely():
    assert agrees(["built in 1.5 s"], "built  in 20.25 s\n")
    assert agrees(["a", "...", "d"], "a\nb\nc\nd\n")
    assert agrees(["a", "..."], "a\n")
    assert agrees(["target cpu:x86-64-v4+bf16: f_0123456789ab"], "target cpu:x86-64-v3: f_ffff56789abc\n")
    assert not agrees(["a", "b"], "a\nc\n")
    assert not agrees(["a"], "a\nb\n")


def test_steps_of_a_page(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ one \\\n  --more\nout\n$ two\n```\n\n```python\nprint(3)\n```\n\n```text\n3\n```\n\n"
        "<!-- not run: it takes long -->\n```console\n$ three\n```\n"
    )
    one, two, three = steps_of(page)
    assert (one.command, one.expected) == ("one \\\n  --more", ["out"])
    assert (two.command, two.expected) == ("two", [])
    assert (three.command, three.expected, three.is_python) == ("print(3)", ["3"], True)


def test_links_lead_somewhere():
    import re

    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
