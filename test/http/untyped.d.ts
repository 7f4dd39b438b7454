// The older majors are installed under aliases, without types of their own. What the tests use of
// them is the same in both.
declare module "express4" {
  import express from "express";
  export default express;
}

declare module "koa2" {
  import Koa from "koa";
  export default Koa;
}

// What the tests use of parsers that have no types of their own, or whose types change those of the
// frameworks.
declare module "multer" {
  import type { RequestHandler } from "express";

  interface Multer {
    single(field: string): RequestHandler;
    array(field: string): RequestHandler;
    fields(fields: readonly { name: string }[]): RequestHandler;
    any(): RequestHandler;
    none(): RequestHandler;
  }
  export default function multer(options?: { dest?: string }): Multer;
}

declare module "@koa/multer" {
  import type { Middleware } from "koa";

  interface Multer {
    single(field: string): Middleware;
    array(field: string): Middleware;
    fields(fields: readonly { name: string }[]): Middleware;
    any(): Middleware;
  }
  export default function multer(options?: { dest?: string }): Multer;
}

declare module "express-fileupload" {
  import type { RequestHandler } from "express";
  export default function fileUpload(options?: object): RequestHandler;
}
