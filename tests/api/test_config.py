"""`framejit.config`: settings by attribute, for a while, and from the environment."""
import pytest

import framejit
from framejit.config import Config, from_environment
from framejit.errors import FramejitWarning, InvalidOption


def test_patch_restores_what_was_there():
    before = framejit.config.recompile_limit
    with framejit.config.patch(recompile_limit=3, debug=True):
        assert (framejit.config.recompile_limit, framejit.config.debug) == (3, True)
    assert (framejit.config.recompile_limit, framejit.config.debug) == (before, False)


def test_patch_restores_after_an_exception():
    with pytest.raises(ZeroDivisionError), framejit.config.patch(debug=True):
        raise ZeroDivisionError
    assert framejit.config.debug is False


def test_patch_restores_when_one_setting_is_wrong():
    with pytest.raises(InvalidOption), framejit.config.patch(debug=True, recompile_limits=3):
        pass
    assert framejit.config.debug is False


def test_an_unknown_setting_gets_a_suggestion():
    with pytest.raises(InvalidOption, match="did you mean 'recompile_limit'"):
        framejit.config.recompile_limits = 3


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recompile_limit", "3"), ("recompile_limit", True), ("recompile_limit", -1), ("debug", 1),
        ("default_backend", None),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(name, value):
    before = getattr(framejit.config, name)
    with pytest.raises(InvalidOption, match=name):
        setattr(framejit.config, name, value)
    assert getattr(framejit.config, name) == before


@pytest.mark.parametrize(
    ("variable", "text", "name", "value"),
    [
        ("FRAMEJIT_DEBUG", "1", "debug", True),
        ("FRAMEJIT_DEBUG", "off", "debug", False),
        ("FRAMEJIT_RECOMPILE_LIMIT", "4", "recompile_limit", 4),
        ("FRAMEJIT_DEFAULT_BACKEND", "inductor", "default_backend", "inductor"),
        ("FRAMEJIT_LOGS", "graph", "logs", "graph"),
        ("FRAMEJIT_DEBUG", "some/folder", "artifacts", "some/folder"),
        ("FRAMEJIT_ARTIFACTS", "some/folder", "artifacts", "some/folder"),
        ("FRAMEJIT_CACHE_DIR", "/some/folder", "cache_dir", "/some/folder"),
        ("FRAMEJIT_CACHE_SIZE", "0", "cache_size", 0),
    ],
)
def test_the_environment(variable, text, name, value):
    assert getattr(from_environment({variable: text, "HOME": "/"}), name) == value
    assert from_environment({}) == Config()


@pytest.mark.parametrize(("variable", "text"), [("FRAMEJIT_DISABLE", "perhaps"), ("FRAMEJIT_RECOMPILE_LIMIT", "many")])
def test_a_variable_that_makes_no_sense_is_refused(variable, text):
    with pytest.raises(InvalidOption, match=f"{variable}={text}"):
        from_environment({variable: text})


def test_a_folder_for_artifacts_is_not_debug_mode():
    assert from_environment({"FRAMEJIT_DEBUG": "some/folder"}).debug is False


def test_an_unknown_variable_gets_a_suggestion():
    with pytest.warns(FramejitWarning, match="did you mean 'FRAMEJIT_DEBUG'"):
        from_environment({"FRAMEJIT_DEBUGG": "1"})
