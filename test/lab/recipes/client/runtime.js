// `bun runtime.js URL CART`
import process from "node:process";
import { order } from "./order.js";

const [url, cart] = process.argv.slice(2);
console.log(JSON.stringify(await order(url, cart)));
