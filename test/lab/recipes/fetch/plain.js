// The same without a framework.
import { passOrder, placeOrder, reportOrder } from "./orders.js";
import { backend } from "./others.js";

const routes = { "/orders": placeOrder, "/orders/report": reportOrder, "/backend": backend };
const notFound = () => new Response("there is no such page", { status: 404 });

export default {
  hostname: "127.0.0.1",
  fetch(request) {
    const { pathname } = new URL(request.url);
    const handler = pathname.startsWith("/others/") ? passOrder : routes[pathname];
    return (handler ?? notFound)(request);
  },
};
