"""Redundancy between ads: learnt where it is, 0 where it is not, saved and kept by updates."""

from __future__ import annotations

import copy
from pathlib import Path

import numpy as np
import pytest

import reclick as rc
from reclick.engines import as_grouped
from reclick.errors import LogError
from reclick.models import ClickModel, LuceClick, MultiClick
from reclick.models.luce.e_step import score
from reclick.models.luce.fit import TrainingData
from reclick.models.noise import GroupedLog
from reclick.models.redundancy import SEEN_WORD_LOSS, page_overlap
from reclick.text.word_rates import TokenLists
from tests.support.redundant_market import ADS, draw_sessions

HALVES = slice(1000), slice(1000, None)


def test_overlap_is_the_share_of_words_that_a_clicked_ad_has() -> None:
    # ad 0 has the words 1 and 2, ad 1 has 2, 3 and 4, ad 2 has one that no model knows.
    words = np.array([1, 2, 2, 3, 4, -1], np.int32)
    tokens = TokenLists(np.array([0, 2, 5, 6]), words, np.ones(6, np.int32))
    found = page_overlap(tokens, np.array([0, 1, 2, 2, 1], np.int32), np.array([0, 3, 5]))
    expected = np.zeros((2, 3, 3))
    expected[0, 0, 1], expected[0, 1, 0] = SEEN_WORD_LOSS / 3, SEEN_WORD_LOSS / 2
    np.testing.assert_allclose(found, expected)


@pytest.mark.parametrize("kappa", [0.0, 1.0, 2.0])
def test_a_known_redundancy_is_recovered(kappa: float, tmp_path: Path) -> None:
    """Within .3 from 6,000 sessions, about 1,300 of which have several clicks; exactly 0 if 0."""
    model = MultiClick(variant="normalised", redundancy="auto")
    log = draw_sessions(MultiClick(variant="normalised"), kappa, 6000, 1)
    model.fit(log, ads=ADS)
    assert model.redundancy_ == pytest.approx(kappa, abs=0.3 if kappa else 0.0)
    model.save(tmp_path / "model")
    loaded = rc.load(tmp_path / "model")
    assert loaded.redundancy_ == model.redundancy_
    np.testing.assert_array_equal(loaded.log_prob(log), model.log_prob(log))
    if kappa:  # that of highest likelihood of all sessions, not of those that chose it
        values = []
        for near in (-0.02, 0.0, 0.02):
            loaded.redundancy_ = model.redundancy_ + near
            values.append(loaded.log_prob(log).sum())
        assert np.argmax(values) == 1
        loaded.redundancy_ = model.redundancy_
    part = {name: column[:50] for name, column in log.items()}
    model.update(part, again=True)
    assert model.redundancy_ == loaded.redundancy_
    assert model.training_counts.total == 6050


@pytest.mark.parametrize("model", [MultiClick(), LuceClick(tune="off")])
def test_without_text_there_is_nothing_to_learn_and_a_warning(
    model: ClickModel, caplog: pytest.LogCaptureFixture
) -> None:
    log = draw_sessions(MultiClick(), 0.0, 100, 1)
    assert model.clone().set_params(redundancy="auto").fit(log).redundancy_ == 0
    assert [each.message for each in caplog.records if "share a word" in each.message]
    number = model.clone().set_params(redundancy=2.0).fit(log)
    np.testing.assert_allclose(number.click_prob(log), model.clone().fit(log).click_prob(log))


def test_counts_do_not_say_what_repeats() -> None:
    log = draw_sessions(MultiClick(), 0.0, 100, 1)
    with pytest.raises(LogError, match="Counts do not say"):
        MultiClick(redundancy="auto").fit(rc.count(log), ads=ADS)
    assert MultiClick(redundancy=1.5).fit(rc.count(log), ads=ADS).redundancy_ == 1.5


@pytest.mark.parametrize("kappa", [0.0, 2.0])
def test_luceclick_recovers_a_known_redundancy(kappa: float, tmp_path: Path) -> None:
    """Within .4 from 4,000 sessions, about 1,900 of which have several clicks; exactly 0 if 0."""
    log = draw_sessions(LuceClick(tune="off"), kappa, 4000, 1)
    model = LuceClick(tune="off", redundancy="auto").fit(log, ads=ADS)
    assert model.redundancy_ == pytest.approx(kappa, abs=0.4 if kappa else 0.0)
    assert (np.diff(model.objective_) > -1e-6).all()
    without = LuceClick(tune="off").fit(log, ads=ADS)
    gain = model.log_prob(log).mean() - without.log_prob(log).mean()
    assert gain > 0.005 if kappa else gain == 0
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(rc.load(tmp_path / "model").log_prob(log), model.log_prob(log))


def test_the_e_step_of_luceclick_has_the_likelihood_of_its_pages() -> None:
    log = draw_sessions(LuceClick(tune="off"), 2.0, 300, 1)
    model = LuceClick(tune="off", redundancy=1.5, satisfaction_strength=None).fit(log, ads=ADS)
    sessions = as_grouped(log)
    training = TrainingData.of(sessions, model._state.layout)
    repeated = training.with_redundancy(1.5, model._pairs.ad_tokens())
    found = np.concatenate([score(model._state.parameters, each) for each in repeated.blocks])
    (batch,) = GroupedLog(sessions).batches()
    (expected,) = model.map_batch(batch, model.score_clicks)
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_an_update_of_luceclick_counts_redundancy(monkeypatch: pytest.MonkeyPatch) -> None:
    """New sessions are more likely than after an update that takes them as if there were none."""
    log = draw_sessions(LuceClick(tune="off"), 3.0, 2000, 1)
    old, new = ({name: each[part] for name, each in log.items()} for part in HALVES)
    model = LuceClick(tune="off", redundancy=3.0).fit(old, ads=ADS)
    blind = copy.deepcopy(model)
    model.update(new, decay=0.1)
    assert model.redundancy_ == 3.0
    monkeypatch.setattr(TrainingData, "with_redundancy", lambda self, *_: self)
    blind.update(new, decay=0.1)
    gain = model.log_prob(new) - blind.log_prob(new)
    assert gain.mean() > 3 * gain.std() / np.sqrt(len(gain))
