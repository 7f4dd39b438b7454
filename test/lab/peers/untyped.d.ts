// What the adapters use of the neighbours, so that a type-check needs none of them installed.

declare module "redlock" {
  export interface Lock {
    readonly value: string;
    extend(ms: number): Promise<Lock>;
    release(): Promise<unknown>;
  }
  export class ResourceLockedError extends Error {}
  export class ExecutionError extends Error {
    readonly attempts: readonly Promise<{ votesAgainst: Map<unknown, Error> }>[];
  }
  export default class Redlock {
    constructor(clients: unknown[], settings?: { retryCount?: number });
    on(event: "error", listener: (error: unknown) => void): this;
    acquire(resources: string[], ms: number): Promise<Lock>;
  }
}

declare module "redis-semaphore" {
  export interface MutexOptions {
    lockTimeout?: number;
    acquireAttemptsLimit?: number;
    refreshInterval?: number;
    onLockLost?: (error: Error) => void;
  }
  export class Mutex {
    constructor(client: unknown, key: string, options?: MutexOptions);
    readonly identifier: string;
    tryAcquire(): Promise<boolean>;
    release(): Promise<void>;
  }
}

declare module "@verrou/core" {
  export interface VerrouLock {
    getOwner(): string;
    acquire(): Promise<boolean>;
    acquireImmediately(): Promise<boolean>;
    extend(ms?: number): Promise<void>;
    release(): Promise<void>;
  }
  export class LockFactory {
    constructor(store: unknown);
    createLock(name: string, ms: number): VerrouLock;
  }
}

declare module "@verrou/core/drivers/redis" {
  export function redisStore(options: { connection: unknown }): { factory(): unknown };
}

declare module "redlock-universal" {
  export interface Handle {
    readonly value: string;
  }
  export interface UniversalLock {
    acquire(): Promise<Handle>;
    extend(handle: Handle, ms: number): Promise<boolean>;
    release(handle: Handle): Promise<boolean>;
  }
  export class IoredisAdapter {
    constructor(client: unknown);
  }
  export function createLock(options: {
    adapter: IoredisAdapter;
    key: string;
    ttl: number;
    retryAttempts?: number;
  }): UniversalLock;
}

declare module "redis5" {
  export function createClient(options: object): {
    on(event: "error", listener: () => void): unknown;
    connect(): Promise<unknown>;
    sendCommand(words: readonly string[]): Promise<unknown>;
    destroy(): void;
  };
}
