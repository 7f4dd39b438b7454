// What the adapters use of the neighbours, so that a type-check needs none of them installed.

declare module "express-idempotency" {
  import type { Request, RequestHandler } from "express";

  export function idempotency(options: { dataAdapter: unknown }): RequestHandler;
  export function getSharedIdempotencyService(): {
    isHit(req: Request): boolean;
    reportError(req: Request): Promise<void>;
  };
}

declare module "express-idempotency-redis-adapter" {
  const module: {
    default: new (options: {
      connectionConfig: { url: string };
    }) => {
      connect(): Promise<void>;
    };
  };
  export default module;
}

declare module "@node-idempotency/core" {
  export interface Asked {
    method: string;
    path: string;
    headers: object;
    body: unknown;
  }
  export interface Answered {
    body?: unknown;
    error?: unknown;
    additional?: Record<string, unknown>;
  }
  export class Idempotency {
    constructor(storage: unknown);
    onRequest(asked: Asked): Promise<Answered | undefined>;
    onResponse(asked: Asked, answered: Answered): Promise<void>;
  }
  export class IdempotencyError extends Error {
    readonly code: string;
  }
}

declare module "@node-idempotency/storage-adapter-redis" {
  export class RedisStorageAdapter {
    constructor(options: { url: string });
    connect(): Promise<void>;
  }
}

declare module "@node-idempotency/nestjs" {
  export const NodeIdempotencyModule: {
    forRootAsync(options: { storage: { adapter: "redis"; options: { url: string } } }): object;
  };
  export function Idempotent(): MethodDecorator;
}

declare module "@nestjs/common" {
  export function Controller(): ClassDecorator;
  export function Module(parts: { imports: object[]; controllers: object[] }): ClassDecorator;
  export function Post(path: string): MethodDecorator;
  export function Body(): ParameterDecorator;
  export function Headers(name: string): ParameterDecorator;
  export class StreamableFile {
    constructor(stream: object, options: { type: string });
  }
}

declare module "@nestjs/core" {
  export const NestFactory: {
    create(
      module: object,
      options: { logger: false },
    ): Promise<{ listen(port: number, host: string): Promise<void> }>;
  };
}
