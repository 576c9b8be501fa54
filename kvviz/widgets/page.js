// Stands in for the kernel in a web page: answers the stepper's requests from the page itself.
{
  const here = document.currentScript.parentElement;
  const data = JSON.parse(here.querySelector("[type='application/json']").textContent);
  const { module, style, state, answers, pictures } = data, listeners = new Map();
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const listenersTo = (name) =>
    listeners.get(name) ?? listeners.set(name, new Set()).get(name);

  function send(request) {
    const missing = [{ ...request, error: "this page doesn't hold that picture" }, []];
    const [message, numbers] = answers[JSON.stringify(request)] ?? missing;
    const buffers = numbers.map((n) => new DataView(bytes(pictures[n]).buffer));
    for (const listen of listenersTo("msg:custom")) setTimeout(listen, 0, message, buffers);
  }

  const model = {
    get: (name) => state[name],
    set: (name, value) => (state[name] = value),
    save_changes: () => {}, // there is no kernel to send them to
    on: (name, listener) => listenersTo(name).add(listener),
    off: (name, listener) => listenersTo(name).delete(listener),
    send,
  };
  here.append(Object.assign(document.createElement("style"), { textContent: style }));
  import(URL.createObjectURL(new Blob([module], { type: "text/javascript" }))).then((widget) =>
    widget.default.render({ model, el: here }),
  );
}
