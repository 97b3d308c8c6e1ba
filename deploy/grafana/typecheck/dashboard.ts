// A Classic dashboard by the types of @grafana/schema, narrowed to the panels that the generator writes. `wrap.mjs` turns
// each JSON file into a module `export default … satisfies TracewiseDashboard`, so that tsc also finds misspelt keys.

import type { AnnotationQuery, Dashboard, DataSourceRef, FieldConfig, Panel, RowPanel, VariableModel } from '@grafana/schema';
import type * as bargauge from '@grafana/schema/dist/esm/raw/composable/bargauge/panelcfg/x/BarGaugePanelCfg_types.gen';
import type * as stat from '@grafana/schema/dist/esm/raw/composable/stat/panelcfg/x/StatPanelCfg_types.gen';
import type * as table from '@grafana/schema/dist/esm/raw/composable/table/panelcfg/x/TablePanelCfg_types.gen';
import type * as timeseries from '@grafana/schema/dist/esm/raw/composable/timeseries/panelcfg/x/TimeSeriesPanelCfg_types.gen';

/** Enumerations as their values: JSON has no names for them. */
type Plain<T> = T extends string
  ? `${T}`
  : T extends number
    ? `${T}` extends `${infer Value extends number}` ? Value : never
    : T extends object
      ? { [Key in keyof T]: Plain<T[Key]> }
      : T;

/** A query to Prometheus. @grafana/schema has no type for it. */
interface Target {
  refId: string;
  datasource: DataSourceRef;
  expr: string;
  legendFormat: string;
  instant?: boolean;
  format?: 'table' | 'time_series';
}

interface Chart<Type, Options, Custom> extends Omit<Panel, 'type' | 'options' | 'fieldConfig' | 'targets'> {
  type: Type;
  id: number;
  title: string;
  description: string;
  datasource: DataSourceRef;
  targets: Target[];
  options: Partial<Options>;
  fieldConfig: {
    defaults: Omit<FieldConfig, 'custom'> & { custom: Partial<Custom> };
    overrides: NonNullable<Panel['fieldConfig']>['overrides'];
  };
}

type AnyPanel =
  | Chart<'timeseries', timeseries.Options, timeseries.FieldConfig>
  | Chart<'stat', stat.Options, Record<string, never>>
  | Chart<'bargauge', bargauge.Options, Record<string, never>>
  | Chart<'table', table.Options, table.FieldConfig>
  | (Omit<RowPanel, 'type'> & { type: 'row' });

/** The query of an annotation, in the form that all versions of Grafana read. */
interface Annotation extends AnnotationQuery {
  expr: string;
  step: string;
  titleFormat: string;
  textFormat: string;
  tagKeys: string;
}

interface Variable extends VariableModel {
  definition?: string;
}

export type TracewiseDashboard = Plain<
  Omit<Dashboard, 'panels' | 'annotations' | 'templating'> & {
    panels: AnyPanel[];
    annotations: { list: Annotation[] };
    templating: { list: Variable[] };
  }
>;
