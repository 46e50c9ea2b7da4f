"""`gradsweep doctor`: what stands in its table."""

from checks import doctor


def test_what_is_absent_is_optional_and_has_a_line_to_paste():
    (text,) = doctor._state("no_such_module", "torch")
    assert text.plain == 'absent (optional): pip install "gradsweep[torch]"'


def test_what_is_there_has_its_version(capsys):
    assert doctor.report() == 0
    out = capsys.readouterr().out
    assert "and capture by attach" in out and "imports: ok" in out
    assert "missing" not in out
