// Stands in for the kernel in a web page: answers the stepper's requests from the page itself.
{
  const here = document.currentScript.parentElement;
  const data = JSON.parse(here.querySelector("[type='application/json']").textContent);
  const { module, style, state, answers, pictures } = data, listeners = new Map();
  const bytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const listenersTo = (name) =>
    listeners.get(name) ?? listeners.set(name, new Set()).get(name);

  // A picture is one image, or several on top of each other.
  async function lay(numbers) {
    if (numbers.length === 1) return bytes(pictures[numbers[0]]).buffer;
    const blobs = numbers.map((n) => new Blob([bytes(pictures[n])]));
    const images = await Promise.all(blobs.map((blob) => createImageBitmap(blob)));
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [images[0].width, images[0].height];
    for (const image of images) canvas.getContext("2d").drawImage(image, 0, 0);
    const blob = await new Promise((done) => canvas.toBlob(done));
    return blob.arrayBuffer();
  }

  async function send(request) {
    const missing = [{ ...request, error: "this page doesn't hold that picture" }, []];
    const [message, stacks] = answers[JSON.stringify(request)] ?? missing;
    const buffers = (await Promise.all(stacks.map(lay))).map((buffer) => new DataView(buffer));
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
