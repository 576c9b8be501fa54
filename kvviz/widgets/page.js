// Stands in for the kernel in a page of its own: what the stepper asks is answered from the page.
{
  const here = document.currentScript.parentElement;
  const data = JSON.parse(here.querySelector("[type='application/json']").textContent);
  const { module, style, state, answers, pictures } = data, heard = new Map();
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const listeners = (name) => heard.get(name) ?? heard.set(name, new Set()).get(name);

  function send(asked) {
    const missing = [{ ...asked, error: "this page does not hold that picture" }, []];
    const [message, shown] = answers[JSON.stringify(asked)] ?? missing;
    const buffers = shown.map((n) => new DataView(bytes(pictures[n]).buffer));
    for (const tell of listeners("msg:custom")) setTimeout(tell, 0, message, buffers);
  }

  const model = {
    get: (name) => state[name],
    set: (name, value) => (state[name] = value),
    save_changes: () => {}, // nobody else is to be told
    on: (name, listener) => listeners(name).add(listener),
    off: (name, listener) => listeners(name).delete(listener),
    send,
  };
  here.append(Object.assign(document.createElement("style"), { textContent: style }));
  import(URL.createObjectURL(new Blob([module], { type: "text/javascript" }))).then((widget) =>
    widget.default.render({ model, el: here }),
  );
}
