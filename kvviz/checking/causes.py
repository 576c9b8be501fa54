"""Name the likely mistake in a cached loop, from what its recording holds."""

from __future__ import annotations

import torch


def of(out, run, p, n, expected, scores_right):
    """Headline, cause, advice and step of the first thing in the recording that is not right."""
    text = expected[0].tolist()
    found = in_steps(run, p, text)
    if found:
        return found
    n_new = out.shape[1] - p
    if n_new == n - p and torch.equal(out[0], expected[0, p:]):
        return (
            "your loop returned the new tokens without the prompt",
            "prompt missing",
            f"Return both, in one tensor of shape {(1, p + n)}.",
            None,
        )
    if 0 <= n_new < n:
        return (
            f"your loop returned {n_new} new tokens, and {n} were asked for",
            "too few tokens",
            "The prompt's own pass gives the first new token, and each step after it one more.",
            None,
        )
    if n_new > n:
        return (
            f"your loop returned {n_new} new tokens, and {n} were asked for",
            "too many tokens",
            "The prompt's own pass already gives the first new token.",
            None,
        )
    differ = (out[0, : expected.shape[1]] != expected[0, : out.shape[1]]).nonzero()
    if scores_right and len(differ):
        place = int(differ[0])
        came, best = run.label(int(out[0, place])), run.label(text[place])
        return (
            f"your loop returned {came!r} at place {place}, and {best!r} had the highest score",
            "another token returned",
            "What was fed is right. Return the tokens that were chosen, behind the prompt.",
            None,
        )
    return (
        "something differs that this check does not recognise",
        "not recognised",
        "The first place that differs is below: compare what you wrote there with the plain loop.",
        None,
    )


def in_steps(run, p, text):
    """The first step that is not right, as `of` gives it; None if all are."""
    written = 0
    for step in run:
        found = _cause_at(step, written, text, p, run)
        if found:
            return *found, step.index
        written = step.visible
    return None


def _cause_at(step, written, text, p, run):
    """What is wrong with one step, given that everything before it was right; None if nothing."""
    fed, held, new = step.token_ids[0].tolist(), step.held_before, step.fed
    at = f"step {step.index}"
    if step.index == 0 and held:
        return stale(run, "Your loop")
    positions = step.position_ids[0].tolist()
    if held == written and fed == text[written : written + new]:
        if positions == list(range(held, held + new)):
            return None
        ahead = positions[-1] - (held + new - 1)
        return (
            f"{at}: {run.label(fed[-1])!r} is at place {held + new - 1}, and was given position "
            f"{positions[-1]}",
            "position not advanced"
            if ahead < 0
            else "position counted twice"
            if ahead == 1
            else "position miscounted",
            "Its position is the number of tokens held before it: leave position_ids out, or count "
            "them on by one each step.",
        )
    if held == written < p:
        return _other_prompt(step, fed, text, run)
    if held == 0:
        return _nothing_held(step, fed, text, written, p, run)
    if held < written:
        return (
            f"{at}: the store held {held}, after {written} tokens had been fed",
            "store went back",
            "Something was taken out of it, or an older one was handed on. Hand on the store as "
            "the last step returned it, out.cache.",
        )
    if held > written:
        return (
            f"{at}: the store held {held}, after only {written} tokens had been fed",
            "written twice",
            "Each token is written once: look for a second call that fills the same store.",
        )
    if fed[:written] == text[:written] and new > 1:
        return (
            f"{at}: the store held {held} and you fed {new}",
            "whole sequence fed",
            "The sentence is in the store already, so it was written a second time behind itself. "
            "Feed the newest token alone.",
        )
    if new == 1 and fed[0] == text[p - 1]:
        return (
            f"{at}: {run.label(fed[0])!r} was written again",
            "prompt's last token fed",
            "That is the prompt's last token, and the store holds it. Feed what you just produced.",
        )
    if fed[0] == text[written - 1] and new > 1:
        return (
            f"{at}: you fed {new} tokens, and the store held the first of them already",
            f"{new} tokens fed",
            f"{run.label(fed[0])!r} was written twice. Feed the newest token alone.",
        )
    return _not_the_best(step, fed, run)


def _other_prompt(step, fed, text, run):
    """The prompt is still being fed, and not as it is."""
    place = next(i for i, token in enumerate(fed, step.held_before) if token != text[i])
    came = run.label(fed[place - step.held_before])
    return (
        f"step {step.index}: {came!r} was fed at place {place}, and the prompt has "
        f"{run.label(text[place])!r} there",
        "prompt not fed as it is",
        "Feed all of the prompt, in its order, before the first new token.",
    )


def _nothing_held(step, fed, text, written, p, run):
    at = f"step {step.index}"
    if fed == text[: len(fed)] and len(fed) > written:
        return (
            f"{at}: {len(fed)} rows were computed, and nothing was read from a store",
            "store never read",
            "The text is right, and all of it was computed again. Hand the store on (cache=) and "
            "feed the newest token alone.",
        )
    if fed == text[: len(fed)]:
        return (
            f"{at}: the text was begun again, with nothing in the store",
            "begun again",
            f"{written} tokens had been fed already. One pass over the prompt is enough.",
        )
    return (
        f"{at}: you fed {len(fed)} token{'s' * (len(fed) > 1)} and the store held nothing",
        "store not passed on",
        f"The {written} tokens before were forgotten. Pass the store on: "
        "model(token, cache=out.cache).",
    )


def _not_the_best(step, fed, run):
    before = run[step.index - 1]
    best = int(before.logits[0].argmax())
    if len(fed) > 1:
        return (
            f"step {step.index}: you fed {len(fed)} tokens, and one was new",
            "several tokens fed",
            "Take the last row of the scores before you choose: logits[:, -1:].argmax(-1).",
        )
    found = (
        f"step {step.index}: you fed {run.label(fed[0])!r}, but {run.label(best)!r} had the "
        "highest score"
    )
    if fed[0] != best and fed[0] >= before.fed:
        return (
            found,
            "another token fed",
            "Feed the token that was chosen, and only that: whatever is fed stays in the store.",
        )
    if fed[0] != best:  # as small a number as that of a row
        return (
            found,
            "argmax over the wrong axis",
            "The scores were right and the choice was not: take the argmax over the last "
            "dimension, the vocabulary, of the last row.",
        )
    return None


def stale(run, who):
    held = run[0].held_before
    return (
        f"step 0: the store held {held} tokens before the prompt was fed",
        "stale store",
        f"{who} began with the store of an earlier text, and the model read both. Begin each text "
        "with an empty store.",
    )


def not_greedy(run, first):
    """From step `first` on, the first choice without the highest score, as `of` gives it."""
    for before, step in zip(run[first:], run[first + 1 :], strict=False):
        best, fed = int(before.logits[0].argmax()), int(step.token_ids[0, 0])
        if step.held_before == before.visible and step.fed == 1 and fed != best:
            return (
                f"step {step.index}: {run.label(fed)!r} was chosen, but {run.label(best)!r} had "
                "the highest score",
                "not greedy",
                "This check compares greedy loops. A loop that draws its tokens at random may be "
                "right and differ: take the argmax here.",
            )
    return None
