// All heads of the layer, each a button with a small picture.

// `panel` is filled; `choose(head)` is called when one is chosen. Returns {update, show, clear}.
function makeHeads({ panel, request, choose }) {
  let timer, shown = "", urls = [];

  // Marks the head that is displayed, and requests pictures if these are another step's.
  function update({ cached, layer, head, step }) {
    clearTimeout(timer);
    for (const each of panel.querySelectorAll("button"))
      each.setAttribute("aria-pressed", Number(each.value) === head);
    const wanted = [cached, layer, step];
    if (!panel.hidden && shown !== `${wanted}`) timer = setTimeout(request, 200, wanted);
  }

  function show({ heads, sentences, rows, error }, buffers, now) {
    if (`${heads}` !== `${[now.cached, now.layer, now.step]}`) return;
    clear();
    shown = `${heads}`;
    const intro = document.createElement("p");
    const who = rows > 1 ? `each of ${rows} rows` : "the newest token";
    const most = rows > 1 ? " The words are about the newest row." : "";
    const title = `What ${who} attends to in each head of layer ${now.layer}.${most} `;
    intro.textContent = error ?? `${title}Darker is more. Choose a head to see it whole.`;
    urls = buffers.map((bytes) => URL.createObjectURL(new Blob([bytes], { type: "image/png" })));
    const focused = panel.contains(document.activeElement) ? document.activeElement.value : null;
    panel.replaceChildren(intro, ...(sentences ?? []).map((sentence, head) => {
      const each = Object.assign(document.createElement("button"), { type: "button", value: head });
      const image = Object.assign(document.createElement("img"), { src: urls[head], alt: "" });
      each.append(image, sentence.replace(/' (?=\S)/g, "'\u00a0")); // a token doesn't break
      each.onclick = () => choose(head);
      return each;
    }));
    if (focused !== null) panel.querySelector(`button[value="${focused}"]`)?.focus();
    update(now);
  }

  function clear() {
    clearTimeout(timer);
    for (const url of urls) URL.revokeObjectURL(url);
    urls = [];
  }

  return { update, show, clear };
}
