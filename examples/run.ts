// One of the shops to copy: `npm run example express`, or koa, fastify, hono.
import { existsSync } from "node:fs";

const name = process.argv[2] ?? "express";
const shop = new URL(`./${name}/shop.ts`, import.meta.url);
if (existsSync(shop)) await import(shop.href);
else {
  console.error(`npm run example: expected express, koa, fastify or hono, got ${name}`);
  process.exitCode = 2;
}
