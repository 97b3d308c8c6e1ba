// Names of uploads, as the server accepts them.

export const MAX_NAME = 100;

/** 1 to 100 letters, digits, dots, dashes and underscores; the first one is a letter or digit. */
export const NAME_PATTERN = '[A-Za-z0-9][A-Za-z0-9._\\-]{0,99}';

/** A name for a file that the server accepts. The end stays if it is too long, because it tells the format. */
export function validName(fileName: string): string {
  const name = fileName
    .normalize('NFKD')
    .replace(/\p{M}/gu, '')
    .replace(/[^A-Za-z0-9._-]+/g, '-')
    .replace(/-*\.-*/g, '.')
    .replace(/^[._-]+|[-]+$/g, '');
  if (name.length <= MAX_NAME) return name || 'upload';
  const dot = name.search(/(\.[A-Za-z0-9]{1,10}){1,2}$/);
  const end = dot < 0 ? '' : name.slice(dot);
  return name.slice(0, MAX_NAME - end.length) + end;
}

/** Another name if one is taken, as `theta-2.csv` after `theta.csv`. */
export function nextName(name: string): string {
  const dot = name.indexOf('.');
  const [stem, end] = dot < 0 ? [name, ''] : [name.slice(0, dot), name.slice(dot)];
  const numbered = /^(.*)-(\d{1,6})$/.exec(stem);
  const [start, number] = numbered ? [numbered[1], Number(numbered[2]) + 1] : [stem, 2];
  const tail = `-${number}${end}`;
  return tail.length < MAX_NAME ? start.slice(0, MAX_NAME - tail.length) + tail : name;
}
