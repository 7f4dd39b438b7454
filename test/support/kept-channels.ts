import { channel } from "node:diagnostics_channel";

// Node 20 forgets a channel of the same name as one that was collected: its publishers and its
// subscribers then have two. A worker that ends one project and begins another makes all anew.
const names = ["acquire", "release", "lost", "retire", "complete", "duplicate", "replay"];
Object.assign(globalThis, { keptChannels: names.map((name) => channel(`submit-lock:${name}`)) });
