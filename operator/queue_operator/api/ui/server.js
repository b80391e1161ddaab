// The REST API, asked with the reader's token. It is kept for this tab alone, and never in an address.

const KEY = "queue-operator-token";
const PATIENCE_MS = 20000;

export class Refused extends Error {
  constructor(status, message, code = "") {
    super(message);
    this.status = status;
    this.code = code;
  }
}

export const token = {
  get: () => sessionStorage.getItem(KEY),
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

/** What an operation answers. Raises Refused; status 0 where nobody answers. */
export async function ask(method, path, params = {}, body = undefined) {
  const headers = { Accept: "application/json" };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(address(path, params), {
      method,
      headers,
      body: body === undefined ? undefined : JSON.stringify(body),
      cache: "no-store",
      credentials: "same-origin",
      redirect: "error",
      signal: AbortSignal.timeout(PATIENCE_MS),
    });
  } catch (error) {
    throw new Refused(0, `The server does not answer (${error.name}).`);
  }
  const told = await read(response);
  if (response.ok) return told;
  throw new Refused(response.status, told?.message ?? `The server answered ${response.status}.`,
    told?.code);
}

function address(path, params) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== null && one !== undefined && one !== "") query.append(name, one);
    }
  }
  const text = query.toString();
  return `v1/${path}${text ? `?${text}` : ""}`;
}

async function read(response) {
  try {
    return response.status === 204 ? null : await response.json();
  } catch {
    return null;
  }
}

/** Where a job is found. */
export function jobPath(id, rest = "") {
  const segment = id === "." || id === ".." ? id.replaceAll(".", "%2E") : encodeURIComponent(id);
  return `jobs/${segment}${rest}`;
}
