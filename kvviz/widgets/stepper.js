// The stepper in the browser. It requests one frame at a time from Python, the one it needs now,
// and keeps it, so that a frame that was shown before needs no new request.

const MOST_FRAMES = 240; // frames kept, about 30 kB each
const PACE = 1000, SLOW = 2500; // milliseconds per step while playing; SLOW for reduced motion

const PAGE = `
<div class="kv-controls">
  <button type="button" data-go="first">First</button>
  <button type="button" data-go="previous">Previous</button>
  <button type="button" data-go="play">Play</button>
  <button type="button" data-go="next">Next</button>
  <span class="kv-step"><label>Step <input type="range" min="0" step="1"></label>
    <output aria-hidden="true"></output></span>
  <label>Picture <select data-name="view"></select></label>
  <label>Layer <select data-name="layer"></select></label>
  <label>Head <select data-name="head"></select></label>
  <button type="button" data-go="heads" aria-expanded="false">All heads</button>
  <label class="kv-switch"><input type="checkbox" role="switch"> With the cache</label>
</div>
<div class="kv-view">
  <div class="kv-picture"><img alt="" decoding="sync"><p role="alert" hidden></p>
    <span class="kv-wait" hidden>waiting for the kernel</span>
    <div class="kv-mark" hidden></div></div>
  <div class="kv-heads" role="group" aria-label="All heads: choose one" hidden></div>
</div>
<p class="kv-point" aria-live="polite"></p>
<div class="kv-words"><p aria-live="polite"></p><p class="kv-longest" aria-hidden="true"></p></div>
`;
const HINT = "Point at a cell to read it, or move between cells with Shift and the arrow keys.";
const GONE = "This kernel no longer has this run, so it can't draw this. Run the cell again.";
// Keys that aren't the page's while the focus is in a stepper: those that it or its menus use. In
// JupyterLab, a letter would add or delete a cell.
const OWN_KEYS = /^(.|Enter|Home|End|Page(Up|Down)|Arrow(Left|Right|Up|Down))$/u;

const WIDE = 700; // pixels; beside a picture that is wider, there's no room for all heads

const framesOf = new Map(); // a model's place -> its frames, which all of its views share

function renderStepper({ model, el }) {
  const about = model.get("_about"), heads = new Map(about.heads);
  const views = about.views ?? []; // a serving engine's; else there are layers and heads
  const STATE = views.length ? ["view", "step"] : ["cached", "layer", "head", "step"];
  const root = document.createElement("div");
  root.className = "kvviz-stepper";
  root.classList.toggle("kv-wide", about.width > WIDE);
  root.tabIndex = 0;
  root.setAttribute("role", "group");
  root.setAttribute("aria-label", "Stepper: the left and right arrow keys move between steps");
  root.innerHTML = PAGE;
  const find = (css) => root.querySelector(css), button = (name) => find(`[data-go=${name}]`);
  const slider = find("[type=range]"), number = find("output"), image = find("img");
  const layer = find("[data-name=layer]"), head = find("[data-name=head]");
  const view = find("[data-name=view]");
  const cached = find("[type=checkbox]"), alarm = find("[role=alert]"), wait = find(".kv-wait");
  const words = find(".kv-words [aria-live]"), longest = find(".kv-longest");
  const marker = find(".kv-mark"), reading = find(".kv-point"), panel = find(".kv-heads");
  Object.assign(image, { width: about.width, height: about.height });
  root.style.setProperty("--kv-width", `${about.width}px`);
  const last = (slider.max = about.steps - 1);
  longest.textContent = about.longest; // reserves space, so that nothing jumps
  if (!about.switch) find(".kv-switch").remove();
  if (!about.overview.length) button("heads").remove();
  reading.textContent = HINT;
  for (const menu of views.length ? [layer, head] : [view]) menu.closest("label").remove();
  if (views.length) reading.remove(); // these pictures have no cells to read
  view.append(...views.map(([name, words]) => new Option(words, name)));
  layer.append(...[...heads.keys()].map((n) => new Option(n, n)));

  const id = model.get("_place"), frames = framesOf.get(id) ?? new Map();
  framesOf.set(id, frames); // key -> {url, sentence, cells} or {error}
  const now = {};
  const chosen = new Map(); // layer -> the head it was last shown with
  let wantsHeads = false; // whether all heads are wanted, where there's a view of them
  const key = (change) => JSON.stringify(STATE.map((name) => ({ ...now, ...change })[name]));
  const within = (step) => Math.min(last, Math.max(0, step));
  let pending = null; // key of the frame that was requested and isn't here yet
  let newest = 0, displayed = 0; // numbers of the latest `show`, and of the one on the screen
  let sending = false; // while the state is sent to Python, its echo is ignored
  let gone = false, broken = false; // whether the kernel has lost this run; broken is for good
  let sendTimer, playTimer, requestTimer, waitTimer;

  // -- state: `now` is what the browser shows; Python gets it, and can change it

  function go(change, fromPython = false) {
    if (change.layer !== undefined && change.head === undefined)
      now.head = chosen.get(change.layer) ?? now.head;
    Object.assign(now, change);
    now.step = within(now.step);
    if (heads.size) chooseHead();
    [slider.value, view.value] = [now.step, now.view];
    cached.checked = now.cached;
    showOverview();
    number.textContent = `${now.step} / ${last}`;
    slider.setAttribute("aria-valuetext", `step ${now.step} of 0 to ${last}`);
    const ends = { first: now.step === 0, previous: now.step === 0, next: now.step === last };
    for (const [name, end] of Object.entries({ ...ends, play: last === 0 }))
      button(name).setAttribute("aria-disabled", end); // `disabled` would lose the focus
    show();
    if (!fromPython) sendTimer ??= setTimeout(sendState, 120);
  }

  function chooseHead() {
    const options = heads.get(now.layer);
    if (!options.includes(now.head))
      now.head = options.findLast((n) => n < now.head) ?? options[0];
    chosen.set(now.layer, now.head);
    if (`${[...head.options].map((each) => each.value)}` !== `${options}`)
      head.replaceChildren(...options.map((n) => new Option(n, n)));
    [layer.value, head.value] = [now.layer, now.head];
  }

  function sendState() {
    clearTimeout(sendTimer);
    sendTimer = undefined;
    sending = true;
    for (const name of STATE) model.set(name, now[name]);
    sending = false;
    isGone(model).then((is) => (is ? notice(true) : reach(() => model.save_changes())));
  }

  function followPython() {
    if (sending) return;
    const state = Object.fromEntries(STATE.map((name) => [name, model.get(name)]));
    if (STATE.some((name) => state[name] !== now[name])) go(state, true);
  }

  // -- the kernel, which can be gone: then the frames that are here still can be shown

  function reach(send) {
    if (gone) return;
    try {
      send();
    } catch {
      broken = true;
      notice(true);
    }
  }

  function notice(isGone) {
    if (gone === (broken || isGone)) return;
    gone = !gone;
    pending = null;
    show();
  }

  const checkKernel = () => isGone(model).then(notice);

  // -- frames

  async function show() {
    const number = ++newest, frame = frames.get(key()) ?? (gone && { error: GONE });
    clearInterval(waitTimer);
    wait.hidden = true;
    if (!frame) {
      waitTimer = setInterval(() => ((wait.hidden = false), checkKernel()), 500);
      return requestNext();
    }
    if (frames.delete(key())) frames.set(key(), frame); // moved to the end: it's dropped last
    else checkKernel(); // perhaps the connection is back
    await display(frame, number);
    requestSoon();
  }

  async function display(frame, number) {
    if (frame.url) {
      const decoded = new Image();
      decoded.src = frame.url;
      await decoded.decode().catch(() => {}); // before the swap, so that nothing flickers
    }
    if (number < displayed) return; // a later frame was faster
    displayed = number;
    const { url, sentence = "", error = "", size = [about.width, about.height] } = frame;
    if (url) Object.assign(image, { src: url, alt: sentence, width: size[0], height: size[1] });
    image.hidden = !url;
    alarm.hidden = Boolean(url);
    alarm.textContent = error;
    words.textContent = sentence;
    readCell();
    if (sentence.length > longest.textContent.length) longest.textContent = sentence;
  }

  function requestSoon() {
    clearTimeout(requestTimer);
    requestTimer = setTimeout(requestNext, 30);
  }

  // Requests the frame needed now, or else one that is likely to be needed next.
  function requestNext() {
    const steps = [1, -1, 2].map((by) => ({ step: within(now.step + by) }));
    const other = about.switch ? [{ cached: !now.cached }] : views.map(([view]) => ({ view }));
    const next = [{}, ...steps, ...other].map(key).find((each) => !frames.has(each));
    if (gone || pending || !next) return; // one request at a time: there is never a backlog
    pending = next;
    reach(() => model.send({ frame: JSON.parse(next) }));
  }

  function receive(message, buffers) {
    if (message.heads) return overview.show(message, buffers, now);
    if (!message.frame) return;
    const { sentence, error, cells, size } = message, id = JSON.stringify(message.frame);
    if (!frames.get(id)?.url) {
      const url = error ? undefined : URL.createObjectURL(new Blob(buffers, { type: "image/png" }));
      frames.set(id, { url, sentence, error, cells, size });
    }
    for (const oldest of frames.keys()) if (frames.size > MOST_FRAMES) drop(oldest);
    if (pending === id) pending = null;
    if (id === key()) show();
    else if (!frames.has(key())) display(frames.get(id), newest), requestNext();
    else requestSoon();
  }

  function drop(id) {
    const { url } = frames.get(id) ?? {};
    if (url && url !== image.src) URL.revokeObjectURL(url);
    frames.delete(id);
  }

  // -- the cell that is pointed at

  let point; // {square, row, column}

  function readCell() {
    const squares = frames.get(key())?.cells;
    const [says, box] = (squares && point && describeCell(squares, point, about.states)) ?? [];
    reading.textContent = says ?? HINT;
    marker.hidden = !says;
    for (const [n, side] of ["left", "top", "width", "height"].entries())
      if (says) marker.style[side] = `${(100 * box[n]) / (n % 2 ? about.height : about.width)}%`;
  }

  function pointAt(event) {
    const box = image.getBoundingClientRect(), scale = about.width / box.width;
    const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
    point = findCell(frames.get(key())?.cells ?? [], x, y);
    readCell();
  }

  function movePoint(arrow) {
    const squares = frames.get(key())?.cells;
    if (!squares?.length) return;
    const there = point && describeCell(squares, point); // another step can have fewer rows
    point = moveCell(squares, there && point, arrow);
    readCell();
  }

  const overview = makeHeads({
    panel,
    request: (heads) => (gone ? overview.show({ heads, error: GONE }, [], now)
      : reach(() => model.send({ heads }))),
    choose: (head) => move({ head }),
  });

  // In a web page, not every layer has a view of all heads.
  function showOverview() {
    const has = about.overview.includes(now.layer);
    panel.hidden = !(has && wantsHeads);
    if (about.overview.length) {
      button("heads").hidden = !has;
      button("heads").setAttribute("aria-expanded", !panel.hidden);
    }
    overview.update(now);
  }

  // -- controls

  function play(on) {
    clearInterval(playTimer);
    const pace = matchMedia("(prefers-reduced-motion: reduce)").matches ? SLOW : PACE;
    const walk = () => (go({ step: now.step + 1 }), now.step === last && play(false));
    playTimer = on ? setInterval(walk, pace) : undefined;
    button("play").textContent = on ? "Pause" : "Play";
    words.ariaLive = on ? "off" : "polite";
  }

  const moves = {
    first: () => ({ step: 0 }),
    previous: () => ({ step: now.step - 1 }),
    next: () => ({ step: now.step + 1 }),
    last: () => ({ step: last }),
  };
  const move = (change) => (play(false), go(change));
  for (const name of ["first", "previous", "next"])
    button(name).onclick = () => move(moves[name]());
  button("play").onclick = () => {
    if (!playTimer && now.step === last) go({ step: 0 }); // from the beginning, once
    play(!playTimer && last > 0);
  };
  slider.oninput = () => move({ step: Number(slider.value) });
  view.onchange = () => move({ view: view.value });
  layer.onchange = () => move({ layer: Number(layer.value) });
  head.onchange = () => move({ head: Number(head.value) });
  cached.onchange = () => go({ cached: cached.checked });
  image.onpointermove = pointAt;
  image.onpointerdown = pointAt;
  image.onpointerleave = (event) => {
    if (event.pointerType !== "mouse") return; // a finger that is lifted still points
    point = undefined;
    readCell();
  };
  if (about.overview.length) button("heads").onclick = () => {
    wantsHeads = !wantsHeads;
    showOverview();
  };
  root.onkeydown = (event) => {
    const { key, shiftKey, target } = event;
    if (event.ctrlKey || event.metaKey || event.altKey || !OWN_KEYS.test(key)) return;
    if (shiftKey && key === "Enter") return; // runs the cell
    event.stopPropagation();
    const name = { ArrowLeft: "previous", ArrowRight: "next", Home: "first", End: "last" }[key];
    const points = shiftKey && key.startsWith("Arrow");
    if (target.matches("select") || (!points && (!name || shiftKey))) return;
    event.preventDefault();
    if (points) movePoint(key);
    else move(moves[name]());
  };

  model.on("msg:custom", receive);
  model.on("comm_live_update", checkKernel);
  for (const name of STATE) model.on(`change:${name}`, followPython);
  followPython();
  el.append(root);
  return () => {
    play(false);
    clearTimeout(requestTimer);
    clearInterval(waitTimer);
    if (sendTimer) sendState();
    overview.clear();
    model.off("msg:custom", receive);
    model.off("comm_live_update", checkKernel);
    for (const name of STATE) model.off(`change:${name}`, followPython);
    root.remove();
  };
}

function forgetFrames(model) {
  const frames = framesOf.get(model.get("_place"));
  for (const { url } of frames?.values() ?? []) if (url) URL.revokeObjectURL(url);
  framesOf.delete(model.get("_place"));
}

const widget = inPlace(renderStepper, forgetFrames);
