const { createServer } = require("node:http");
const { once } = require("node:events");

/**
 * Sends two submits of one user to a shop whose handler works until the second has its answer, and
 * resolves with both status codes. The shop's listener, or a promise of it, is made here.
 */
module.exports = async function twoClicks(makeListener) {
  let entered;
  let finish;
  const inHandler = new Promise((resolve) => {
    entered = resolve;
  });
  const mayFinish = new Promise((resolve) => {
    finish = resolve;
  });
  let runs = 0;
  const listener = await makeListener(async () => {
    runs += 1;
    // Without a lock both are in the handler, and neither would be answered.
    if (runs === 2) finish();
    entered();
    await mayFinish;
  });
  const server = createServer(listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  const submit = () =>
    fetch(`http://127.0.0.1:${server.address().port}/orders`, { method: "POST" });
  const first = submit();
  await inHandler;
  const second = await submit();
  finish();
  const statuses = [(await first).status, second.status];
  server.closeAllConnections();
  server.close();
  return statuses;
};
