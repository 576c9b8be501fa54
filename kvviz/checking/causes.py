"""The mistakes that the checks know by name, and what to look at for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

UNKNOWN = "not recognised"

ADVICE = {
    # What came back from a loop.
    "not done yet": "",
    "raised": "None of your own lines raised it: check what your code takes, and what it returns.",
    "does not end": "Look for a loop whose condition never becomes false.",
    "model never called": "Run the prompt once, and then one token at a time.",
    "prompt changed": "Put what the loop produces into a new tensor, as torch.cat does.",
    "padded prompt": "A padded loop can be right, but its columns stand elsewhere than this check "
    "looks. Feed the prompt as it came, without padding.",
    "wrong result": "Return the prompt followed by the new tokens, in one tensor.",
    "prompt missing": "Return the prompt and the new tokens after it, in one tensor.",
    "too few tokens": "The prompt's own pass gives the first new token, and each step after it "
    "gives one more.",
    "too many tokens": "The prompt's own pass already gives the first new token.",
    "another token returned": "What you fed is right. Return the tokens that were chosen, after "
    "the prompt.",
    "not greedy": "Choose the token with the highest score in the last row: "
    "logits[:, -1:].argmax(-1). A loop that samples its tokens can be right and still differ, but "
    "this check compares greedy loops.",
    "yields": "Collect the tokens in a list, and return them after the prompt, in one tensor.",
    "endless loop": "Look at what ends your loop: it needs n new tokens, so use "
    "`for step in range(n)`, or see that what the condition reads changes in each step.",
    # What a loop fed, and to which cache.
    "stale cache": "The model read an earlier text along with this one. Start each text with an "
    "empty cache: make a new one, or reset it (reset must empty every slot).",
    # What a loop that is called again fed, and to which cache.
    "kept cache not used": "The result is right, but all of it was recomputed. Keep the cache from "
    "one call to the next, keep what both texts begin with, and feed only the rest.",
    "cache not kept": "The first call's cache wasn't there in the second. Keep it where both find "
    "it, such as in an attribute of an object, and pass it to the second turn's first pass.",
    "edited text not cropped": "What follows the first difference belongs to the old text, and "
    "the model reads it along with the new one. Count how many tokens both begin with, and crop "
    "the cache to that: cache.crop(n - held).",
    "turn's last token missing": "A turn's last token is chosen but never fed, so the cache "
    "doesn't hold it. In the next turn, feed it first, in one pass with what comes after it.",
    "new tokens left out": "A chat has more between the messages than their words: the end of a "
    "turn, and whose turn it is. Feed all of the text that the cache doesn't hold: ids[:, n:].",
    "nothing fed": "A pass needs at least one token, since its row gives the next. If the cache "
    "already holds the whole text, crop the last token and feed it again.",
    "prompt not fed as given": "Feed the whole prompt, in order, before the first new token.",
    "cache never read": "The result is right, but all of it was recomputed. Pass the cache on, "
    "read from it, and feed only the newest token.",
    "started over": "One pass over the prompt is enough: keep the cache it fills.",
    "cache not passed on": "The tokens before were forgotten. Pass the cache on: "
    "model(token, cache=out.cache).",
    "cache went back": "Something was taken out of the cache, or an older one was passed on. Pass "
    "on the cache that the last step returned, out.cache.",
    "whole sequence fed": "The cache already holds this text, so it was written a second time "
    "after itself. Feed only the newest token.",
    "prompt's last token fed": "That is the prompt's last token, and the cache already holds it. "
    "Feed the token you just produced.",
    "token fed twice": "A token that is fed again is written again. Feed only the newest token.",
    "fed twice": "Whatever is fed is written again after itself. Feed each part of the text once.",
    "wrong guess kept": "A guess that turns out wrong has to leave the cache again: "
    "cache.crop(-n) takes out the last n tokens.",
    "cropped too few": "Of the k guesses fed, only the n_right accepted ones stay in the cache. "
    "Take out all that come after them: cache.crop(-(k - n_right)).",
    "cropped too many": "An accepted guess stays in the cache, and so does the token fed before "
    "it. Of the k guesses fed, take out only those after the n_right accepted: "
    "cache.crop(-(k - n_right)). Whatever else you take out has to be fed again.",
    "guesses accepted unchecked": "Compare each guess with the model's own choice, the argmax of "
    "the row before it. Keep the guesses up to the first that differs, and crop the rest.",
    "guess compared with the wrong row": "The choice that a guess is compared with comes from the "
    "row before the guess: best[:, :-1] beside guesses, where best holds a token for each row fed.",
    "wrong guess accepted": "Accept guesses up to the first that isn't the model's own choice, "
    "and none after it. There, the text goes on with the model's choice.",
    "bonus token from the wrong row": "The bonus token is the choice of the last accepted token's "
    "row: best[:, n_right]. The rows after it come from wrong guesses.",
    "bonus token missing": "Each pass gives a token beside the accepted guesses: the model's own "
    "choice after them. Append it to the text, and feed it first in the next pass.",
    "bonus token written twice": "The model's own choice after the accepted guesses is one token: "
    "append it once, and feed it once, in front of the next guesses.",
    "most fed again": "Keep what the cache holds, and feed only what is new.",
    "wrong row": "The last row of the logits is the one that predicts the next token: "
    "logits[:, -1:].argmax(-1).",
    "several tokens fed": "Take the last row of the logits before you choose: "
    "logits[:, -1:].argmax(-1).",
    "argmax over the wrong axis": "The logits were right and the choice was not: take the argmax "
    "over the last dimension, the vocabulary, of the last row.",
    "another token fed": "Feed the token that was chosen and no other: whatever you feed stays in "
    "the cache.",
    # Positions.
    "position not advanced": "A token's position is the number of tokens before it. Leave "
    "position_ids out, or add one at each step.",
    "position restarts": "That is its offset in this call. Its position counts on from the tokens "
    "already held.",
    "position counted twice": "It was counted as held and as new. A token's position is the number "
    "of tokens held before it.",
    "counter left behind": "The cache was emptied, but a counter still counts on from the earlier "
    "text. Rotary logits don't change until the positions run out; learned positions would. Read "
    "the position from the cache's tensors.",
    "positions shifted": "Rotary scores depend on distances alone, so a shift of all positions "
    "doesn't change the text; with learned positions it would. Still, keys aren't where the text "
    "is: start at 0, or leave position_ids to the model.",
    "position miscounted": "A token's position is the number of tokens before it.",
    "key at position 0": "A key rotated for position 0 is a key that isn't rotated at all: rotate "
    "it for its true position before you store it.",
    "rotation skipped": "The position was right, and nothing was rotated for it: `rotate` must "
    "rotate every query and every key, of single tokens too.",
    "rotated backwards": "The position was right, and the angle had the wrong sign: look at the "
    "signs of the sines in `rotate`.",
    "query not rotated": "The key was rotated and the query wasn't: both are rotated for the "
    "token's position.",
    "query rotated backwards": "The key is right and the query's angle has the wrong sign: both "
    "are rotated the same way.",
    "query at another position": "The key is right: rotate the query for the same position.",
    "key at another position": "The query is right: rotate the key for the same position, once, "
    "before it is stored.",
    "key rotated backwards": "The query is right and the key's angle has the wrong sign: both are "
    "rotated the same way.",
    "keys rotated twice": "The key was right when it was stored, and has been rotated again since.",
    "positions not taken back": "A token's position is the number of tokens held before it. Take "
    "the wrong guesses out of the counter too, or leave position_ids to the model.",
    "positions taken back too far": "A token's position is the number of tokens held before it. "
    "Count the newest token and each accepted guess: only wrong guesses leave the counter.",
    # What the cache held.
    "not empty at first": "Before the first write, `get` must return None: that is how attention "
    "knows that nothing is held.",
    "not empty after reset": "After `reset`, `get` must return None for every layer: to fill a "
    "slot with zeros isn't enough.",
    "two reads differ": "`get` only reads: called twice, it must return the same, and afterwards "
    "the slot must hold what it held.",
    "layer never ran": "Run every layer, in order: range(len(self.layers)) has them all.",
    "cache emptied": "What is held is needed until the text ends. Whoever made the cache resets "
    "it, and `forward` doesn't.",
    "tokens miscounted": "ids is (B, t): its second size is t.",
    "ids changed": "`forward` only reads its ids: work on a copy of them.",
    "unexpected return value": "Look at what that method returns.",
    "entry of another shape": "`get` must return what `update` was given: (sequences, key/value "
    "heads, tokens, head width).",
    "entry in another dtype": "`get` must return what `update` was given, in the same dtype.",
    "keys and values of unequal length": "Each token has one key and one value: look at which of "
    "the two was cut, or not written.",
    "empty columns": "A buffer has room for more than it holds: return only the columns that were "
    "written.",
    "cache not used": "Every call began without a past: pass the cache on to where keys and values "
    "are read.",
    "no cache not handled": "Without a cache, positions start at 0, and nothing is read or "
    "written. Wherever you use the cache, ask first whether it `is not None`.",
    "empty cache not used": "An empty cache is a cache. `if cache:` asks whether it's true, and "
    "one that holds nothing may be false: ask `if cache is not None:`.",
    "held miscounts": "`held` is how many tokens the cache holds: read it from the tensors.",
    "write never happens": "What attention returns must be in the slot at the next call, and come "
    "out of it: look at `update`, and at `get`.",
    "write missing": "Something was not written, or was taken out again.",
    "written twice": "Each token is written once. Look for a second call that fills the same "
    "cache; in a cache of your own, `update` replaces the entry and never adds to it.",
    "write in the wrong position": "One token is where another should be: one write overwrote "
    "another, or the wrong column was read. A new token goes after all that are held; in pages, no "
    "page is in a table twice.",
    "new token not appended": "The next step doesn't have it either: the longer keys and values "
    "were dropped.",
    "past not appended": "What `get` returned must reach `block` as the past, and `append` must "
    "return that past and then the new tokens.",
    "own key left out": "The token attended before it was appended. A token attends to itself too.",
    "wrong order": "A single query gives the same result: each key carries its position, and a sum "
    "has no order. A chunk of several queries doesn't, because its mask counts columns.",
    "keys and values swapped": "Compare the order in which keys and values are written with the "
    "order in which they are read.",
    "keys apart from their values": "A key and its value belong in the same column: append both at "
    "the same end.",
    "one slot for all layers": "Keys differ from layer to layer: give each layer its own slot.",
    "another layer's slot": "Keys differ from layer to layer: each layer has its own slot, and "
    "reads and writes that one.",
    "keys of another layer": "Keys differ from layer to layer: read both from the same slot.",
    "values of another layer": "Values differ from layer to layer: read both from the same slot.",
    "another sequence's entry": "Each sequence of a batch has its own keys and values, in its own "
    "row: keep all rows.",
    "state kept in the forge": "What belongs to one text is kept in the forge, where every cache "
    "sees it: keep it in the cache.",
    "not a number": "Look for a buffer that was read before it was written, for a division by "
    "zero, and for a row that may see no column at all.",
    "state shared between caches": "Something that belongs to one cache is kept where every cache "
    "sees it: create it in __init__, not in the class.",
    "shared page written without a copy": "A page in two tables is read by both. Before a cache "
    "writes to one, it takes a page of its own and copies what is there.",
    "freed page still read": "Whoever takes a free page writes over it. A page is free when no "
    "table lists it: `reset` must empty the table, too, and `fork` must count one more owner.",
    "pages not given back": "Each fork takes pages, and `reset` must give back all that its table "
    "lists. So must a write that copies a page: the page it leaves has one owner less. `crop` "
    "gives back those that hold nothing any more.",
    "page table off by one": "Position p is in page p // page_size of the table, in cell "
    "p % page_size: both from the same p, for reading and for writing.",
    "precision": "It was kept with fewer bits than it was computed with. That can be a good trade, "
    "but it's no longer the same cache.",
    "scale along the wrong axis": "Values share a scale with those of all other tokens: each "
    "larger one moves it, and makes it coarser for the rest. Give each value a scale of its own, "
    "along its channels: then what is held stays as it is.",
    "held changed a little": "Keys and values must come out as they went in, to the last digit: "
    "look for arithmetic on the way into the cache, or out of it. The change adds up from step to "
    "step where the whole entry is stored again.",
    # What a crop left.
    "nothing cropped": "crop(-n) takes the last n tokens out of every layer. As long as they are "
    "held, every later token attends to them.",
    "crop takes too few": "crop(-n) takes the last n tokens out, and no fewer: what is left of a "
    "wrong text is read by every later token.",
    "crop takes too many": "crop(-n) takes the last n tokens out, and no more: those before them "
    "were right, and nobody feeds them again.",
    "crop counts differently": "crop(-n) takes the last n tokens out, as in the library: its "
    "number is negative, and counts what goes, not what stays.",
    "crop of nothing": "crop(0) changes nothing. A slice that ends at -0 ends at 0, and is empty: "
    "count the tokens that are left, and keep those.",
    "cropped at the wrong end": "The newest tokens go, and the first ones stay.",
    "only some layers cropped": "Each layer has an entry of its own: take the tokens out of all.",
    "cropped tokens came back": "What was taken out is still stored, and is read again once more "
    "tokens are held: take back every count that says where to write next.",
    "counter not taken back": "The tokens went, and a counter still counts them: take n off it "
    "too, or read the position from what is held.",
    "crop reaches another cache": "Two caches share what they begin with. A crop shortens its own "
    "table, and writes nothing to a page that another one reads.",
    # What a row could see.
    "mask missing": "Several rows at once need the triangle: a row sees its own position and those "
    "before it.",
    "mask looks ahead": "A row sees its own position and those before it, and none after.",
    "mask from the top left": "The triangle belongs at the bottom right: the first new row sees "
    "everything held, and itself.",
    "mask of another width": "Rows see everything that is held, too: a mask runs from where the "
    "cache ends, pos_start, to pos_end, and has a column for each position before pos_end.",
    "mask with a hole": "A row may see every position that is held: a mask covers held and new.",
    "window nobody asked for": "Older tokens were dropped, or hidden. A window can be a good "
    "choice, but it's no longer the same cache: there, every token is needed until the text ends.",
    "first column dropped": "In a trained model, most heads give the first column the attention "
    "they can spare: no other column costs as much to drop. Every token is needed until the text "
    "ends.",
    "moved but not rotated again": "What is left was renumbered, but a key keeps the position it "
    "was rotated for, so distances are wrong. Count on from all that was fed (`next_position`), or "
    "rotate the keys that moved.",
    UNKNOWN: "None of the mistakes this check knows leaves these numbers. Everything before this "
    "point is right: compare your code with the plain version here.",
}


@dataclass(frozen=True)
class Cause:
    """A mistake: its name, what is wrong in words, and where it shows, as far as that is known."""

    name: str
    says: str
    step: int | None = None
    layer: int | None = None
    position: int | None = None
    lines: str = ""  # the learner's own lines that raised
    instead: str = ""  # of the table's advice
    remark: str = ""  # what is right all the same

    @property
    def advice(self) -> str:
        """What to look at next: the lines that raised, else the table's advice, or this one's."""
        return self.lines or self.instead or ADVICE[self.name]


def first_cause(rules: Iterable[Callable], evidence) -> Cause | None:
    """The first cause that a rule finds in the evidence; None if no rule applies."""
    return next((cause for rule in rules if (cause := rule(evidence))), None)
