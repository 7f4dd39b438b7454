import type { Library } from "./library.ts";
import { serveShop } from "./shop.ts";

export const library: Library = {
  name: "no protection",
  settings: "the route alone.",
  start: (port, redisUrl) => serveShop(port, redisUrl, (placeOrder) => [placeOrder]),
};
