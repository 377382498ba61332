"""Before anything else: the environment that the tests choose; after everything: what they must have left alone."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import environment  # noqa: E402

USER_MODELS = environment.settle()


@pytest.fixture(scope="session", autouse=True)
def the_users_models_stay_as_they_are():
    before = environment.listing(USER_MODELS)
    yield
    assert environment.listing(USER_MODELS) == before
