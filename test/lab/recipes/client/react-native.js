// `node react-native.js URL CART`: where there is no `crypto`, no `sessionStorage`, no `URL` and no
// `fetch` but that of React Native. Its XMLHttpRequest is native code, so that of jsdom is below.
import process from "node:process";
import { createContext, runInContext } from "node:vm";
import { buildSync } from "esbuild";
import { JSDOM } from "jsdom";

const [url, cart] = process.argv.slice(2);
const options = { bundle: true, write: false, format: "iife", globalName: "app" };
const { outputFiles } = buildSync({ entryPoints: ["app.js"], ...options });
const { XMLHttpRequest, FileReader, Blob, FormData } = new JSDOM("", { url }).window;
const natives = { XMLHttpRequest, FileReader, Blob, FormData, setTimeout, clearTimeout };
const context = createContext(natives);
runInContext(outputFiles[0].text, context);
console.log(JSON.stringify(await context.app.order(url, cart)));
