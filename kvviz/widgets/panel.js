// The memory panel in the browser: three fields, and the picture that Python draws for them.

const FIELDS = ["tokens", "batch_size", "precision"];
const FORM = `
<div class="kv-fields">
  <label>Tokens <input type="number" name="tokens" step="500"></label>
  <label>Batch <input type="number" name="batch_size" step="1"></label>
  <label>Precision <select name="precision" aria-label="Precision"></select></label>
</div>
<div class="kv-drawn" aria-live="polite"></div><p role="alert" hidden></p>
`;

function renderPanel({ model, el }) {
  const root = document.createElement("div"), { limits, precisions } = model.get("_about");
  root.className = "kvviz-panel";
  root.innerHTML = FORM;
  const field = (name) => root.querySelector(`[name=${name}]`);
  const drawn = root.querySelector(".kv-drawn"), alarm = root.querySelector("[role=alert]");
  field("precision").append(...precisions.map((name) => new Option(name, name)));
  for (const [name, [min, max]] of Object.entries(limits)) Object.assign(field(name), { min, max });

  function follow() {
    for (const name of FIELDS) field(name).value = model.get(name);
    drawn.innerHTML = model.get("_picture");
  }

  async function send({ target: { name, value } }) {
    const [min, max] = limits[name] ?? [];
    const number = Math.min(max, Math.max(min, Math.round(Number(value) || min)));
    model.set(name, name === "precision" ? value : number);
    field(name).value = model.get(name);
    const gone = await isGone(model);
    warn(gone);
    if (!gone) model.save_changes();
  }

  function warn(isGone) {
    alarm.hidden = !isGone;
    alarm.textContent = isGone ? "This kernel no longer has this panel. Run the cell again." : "";
  }

  for (const name of FIELDS) {
    field(name).onchange = send;
    model.on(`change:${name}`, follow);
  }
  root.onkeydown = (event) => {
    const { ctrlKey, metaKey, altKey, shiftKey, key } = event;
    if (!ctrlKey && !metaKey && !altKey && !(shiftKey && key === "Enter")) event.stopPropagation();
  };
  model.on("change:_picture", follow);
  follow();
  el.append(root);
  return () => {
    for (const name of [...FIELDS, "_picture"]) model.off(`change:${name}`, follow);
    root.remove();
  };
}

const widget = inPlace(renderPanel);
