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

declare module "compression" {
  import type { RequestHandler } from "express";
  export default function compression(options?: { threshold?: number }): RequestHandler;
}

declare module "luaparse" {
  // biome-ignore lint/suspicious/noExplicitAny: a tree of forty kinds of nodes.
  export type Node = any;
  export function parse(source: string, options: object): { body: Node[] };
}

declare module "pg" {
  interface Result {
    rows: never[];
  }
  interface PoolClient {
    query(text: string, values?: unknown[]): Promise<Result>;
    query(config: object, values?: unknown[]): Promise<Result>;
    release(error?: Error): void;
  }
  class Client {
    constructor(options: object);
    on(event: "error", listener: () => void): void;
    connect(): Promise<void>;
    query(text: string, values?: unknown[]): Promise<Result>;
    query(config: object, values?: unknown[]): Promise<Result>;
    end(): Promise<void>;
  }
  class Pool {
    constructor(options: object);
    on(event: "error", listener: () => void): void;
    on(event: "connect", listener: (client: Client) => void): void;
    query(text: string, values?: unknown[]): Promise<Result>;
    connect(): Promise<PoolClient>;
    end(): Promise<void>;
  }
  const pg: { Client: typeof Client; Pool: typeof Pool };
  export default pg;
}

declare module "supertest" {
  interface Answer {
    status: number;
    headers: Record<string, string>;
    text: string;
    // biome-ignore lint/suspicious/noExplicitAny: whatever was answered as JSON.
    body: any;
  }
  interface Asked extends Promise<Answer> {
    set(name: string, value: string): Asked;
    expect(status: number): Asked;
    type(name: "form"): Asked;
    send(body: object | string): Asked;
    redirects(most: number): Asked;
  }
  type Methods = Record<
    "delete" | "get" | "head" | "options" | "post" | "put",
    (path: string) => Asked
  >;
  function supertest(app: unknown): Methods;
  namespace supertest {
    function agent(app: unknown): Methods;
  }
  export default supertest;
}
