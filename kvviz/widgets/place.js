// Where a widget is shown. JupyterLab and Notebook save a cell's output as it is, and prefer a
// widget's view to everything else in it. A view is useless once its kernel is gone: then they show
// an error instead of the picture beside it. So the view is taken out of the output, which leaves
// the still picture, and the widget is put into the picture's place for as long as it has a kernel.

const VIEW = "application/vnd.jupyter.widget-view+json";

// `render` is anywidget's; `forget` is called with a model that is no more.
function inPlace(render, forget = () => {}) {
  function initialize({ model }) {
    const shown = new Map(); // place -> a function that puts the still picture back
    const look = () => {
      for (const [place, leave] of shown)
        if (!place.isConnected) leave(), shown.delete(place);
      for (const place of document.getElementsByClassName(placeName(model))) {
        if (shown.has(place)) continue;
        const still = [...place.childNodes];
        place.replaceChildren();
        const remove = render({ model, el: place });
        shown.set(place, () => (remove(), place.replaceChildren(...still)));
      }
    };
    const watch = new MutationObserver(look); // a cell can be drawn late, or more than once
    watch.observe(document.body, { childList: true, subtree: true });
    look();
    return () => {
      watch.disconnect();
      for (const leave of shown.values()) leave();
      forget(model);
    };
  }

  function renderView({ model, el }) {
    const output = findOutput(model);
    if (!output) return render({ model, el }); // another front end, or a view inside a widget
    const timer = setInterval(() => {
      if (!el.isConnected) return; // JupyterLab isn't done with it yet
      clearInterval(timer);
      leaveStill(model, findOutput(model));
    }, 10);
    return () => clearInterval(timer);
  }

  return { initialize, render: renderView };
}

const placeName = (model) => `kvviz-place-${model.get("_place")}`;

// The output that holds the model's view: {outputs, index}. Only JupyterLab and Notebook have it.
function findOutput(model) {
  for (const cell of model.widget_manager?.context?.model?.cells ?? []) {
    const outputs = cell.outputs;
    for (let index = 0; index < (outputs?.length ?? 0); index++)
      if (outputs.get(index).data?.[VIEW]?.model_id === model.get("_place"))
        return { outputs, index };
  }
}

function leaveStill(model, found) {
  if (!found) return;
  const output = found.outputs.get(found.index).toJSON();
  const { [VIEW]: view, ...data } = output.data;
  const words = document.createElement("p");
  words.textContent = [data["text/plain"]].flat().join("");
  const still = [data["text/html"] ?? words.outerHTML].flat().join("");
  data["text/html"] = `<div class="${placeName(model)}">${still}</div>`;
  found.outputs.set(found.index, { ...output, data });
}

// Whether the kernel that made the widget is gone: shut down, or replaced by one without it.
async function isGone(model) {
  const manager = model.widget_manager;
  if (manager?.kernel === null || manager?.kernel?.connectionStatus === "disconnected") return true;
  if (!manager?.get_model) return false;
  const known = await Promise.resolve(manager.get_model(model.get("_place"))).catch(() => null);
  return known?.comm_live === false;
}
