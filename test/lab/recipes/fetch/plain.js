// The same without a framework.
import { placeOrder, reportOrder } from "./orders.js";

const routes = { "/orders": placeOrder, "/orders/report": reportOrder };
const notFound = () => new Response("there is no such page", { status: 404 });

export default {
  hostname: "127.0.0.1",
  fetch(request) {
    const handler = routes[new URL(request.url).pathname] ?? notFound;
    return handler(request);
  },
};
