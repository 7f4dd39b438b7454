// What React Native sets up for an app, in its own way: the packages that it ships.
import { AbortController } from "abort-controller/dist/abort-controller.js";
import "whatwg-fetch";

Object.assign(globalThis, { AbortController });

export { order } from "./order.js";
